"""For tests alone. TRL runs on a CPU as it is, so there is no engine stand-in here."""
