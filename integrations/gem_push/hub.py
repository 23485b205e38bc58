"""The upload, by ``huggingface_hub``, which finds the token itself (``HF_TOKEN``, or its login)."""

from __future__ import annotations

from pathlib import Path

from gem_core.errors import GemError, MissingDependencyError, how_to_install
from gem_core.runs.redaction import redact


def upload(folder: Path, repo: str, private: bool = False) -> str:
    """Upload a folder as one commit to a model repository, which is made if there is none.

    Args:
        folder: what is uploaded.
        repo: ``OWNER/NAME``.
        private: whether a new repository is private.

    Returns:
        The address of the commit.

    Raises:
        MissingDependencyError: huggingface_hub is missing.
        GemError: the Hub cannot be reached, or refuses.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise MissingDependencyError(
            f"gem-core push needs huggingface_hub: {how_to_install('hub')}."
        ) from None
    api = HfApi(library_name="gem-core")
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message="Upload by gem-core push"
        )
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no answer"
        hint = "log in with `hf auth login`, or set HF_TOKEN" if status in (401, 403) else "see -v"
        raise GemError(f"The Hub refuses {repo}: {status}; {hint}.") from error
    except (OSError, ValueError) as error:
        reason = redact(str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise GemError(f"The upload to {repo} failed: {reason}. Try again.") from error
    return str(commit.commit_url)
