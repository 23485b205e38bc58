"""For tests alone: the parity replay. TRL runs on a CPU as it is and needs no stand-ins."""
