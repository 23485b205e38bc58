"""The warm start: a model imitates a scripted player before it is trained by reinforcement.

imitation   what is imitated, and how: of the tiny model, or of any causal language model
episodes    the scripted player's episodes, played through the real episode machine
clone       behaviour cloning of them
device      on which it is done, and whose memory is given back
pretrained  a warm start of a pretrained model, kept in the cache
"""
