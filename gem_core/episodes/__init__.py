"""Episodes: their data, the machine that plays one, the loops around it, metrics.

What is recorded
    data            Completion, Turn, Segment, Episode, StopReason
    metrics         the numbers of a batch of episodes
    health          whether too many episodes of a batch failed

What a policy reads
    context         the texts of an episode: a template and a history
    templates       texts around observations, also from a chat template (chat, turn_ends)
    tokenizers      Hugging Face tokenizers (special_tokens, token_cache)

One episode
    machine         EpisodeMachine: calls its environment, is given completions
    state           what is known of an episode, and how it goes on
    transcript      its text, tokens and masks
    endings         what its end changes in its record
    limits          what may end it besides its task
    env_results     checks of what an environment returns
    request_seed    the seed of each request

Many episodes
    policy          what the loops need of an engine: Policy, BatchPolicy, Request
    rollout         the loops: play, play_many, play_batch
    rollouts        batches of groups, for a loop of one's own (ended_groups)
    micro_batcher   makes a Policy of a BatchPolicy
    machine_calls   calls of a machine, made here or where its environment lives
    env_calls       makes them: directly, in threads (env_threads), elsewhere; deadlines
    pacing          the turns of the episodes of one event loop
"""
