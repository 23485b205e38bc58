"""The engine of CPU runs, and the parity replay. TRL itself runs on a CPU without stand-ins."""
