"""``gem-core push``: a finished run to the Hugging Face Hub.

folder       the files that are uploaded, taken from a run that may come from somebody else
recipe_file  the recipe as TOML, which can be run again
card         the model card
evidence     controls and lockstep, from their files
hub          the upload, by huggingface_hub
"""
