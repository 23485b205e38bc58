"""What completes a prompt: the CPU engine, endpoints, vLLM, scripted players."""
