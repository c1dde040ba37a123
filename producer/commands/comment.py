"""Post a decision as the comment of a pull or merge request, in place of the last one.

FILE is a comment that `-o comment.md` wrote. On GitHub the job needs GITHUB_TOKEN with the permission to write pull
requests; on GitLab it needs EVALQ_GITLAB_TOKEN, a project access token that may write comments. Where no pull or merge
request is being built, nothing is posted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from evalq.evalcore.errors import InfrastructureError, UsageError
from evalq.evalcore.files import open_input
from evalq.producer.invocation.invocation import Invocation, command

if TYPE_CHECKING:
    import httpx

_MARKER = re.compile(r"<!-- evalq-comment: [A-Za-z0-9_-]+ -->\n")
_PAGES, _PER_PAGE = 20, 100
_SECONDS = 30.0
_MOST = 65_000
"""GitHub takes comments of up to 65,536 characters."""
_TRUSTED = ("OWNER", "MEMBER", "COLLABORATOR")


class _Forge(NamedTuple):
    """Where comments of the request are: ``listed`` is their address, ``one`` that of one of them by its id."""

    listed: str
    one: str
    headers: dict[str, str]
    update: str
    ours: Callable[[Mapping[str, Any]], bool]
    artifact: str


def _comment(invocation: Invocation, file: Path, artifact: str) -> None:
    text = _body(file)
    forge = _github() if os.environ.get("GITHUB_ACTIONS") else _gitlab() if os.environ.get("GITLAB_CI") else None
    if forge is None:
        click.echo("no pull or merge request is built here: nothing is posted", err=True)
        return
    _post(forge, _linked(text, artifact or forge.artifact))


def _body(file: Path) -> str:
    with open_input(file) as stream:
        text: str = stream.read(1 << 20).decode(errors="replace")
    if not _MARKER.match(text):
        raise UsageError(f"{file}: this is no comment of evalq; write one with -o comment.md")
    return text


def _linked(text: str, artifact: str) -> str:
    """The comment with a link to the report and the artifact below its sentence."""
    if not artifact:
        return text
    if not re.fullmatch(r"https?://[^\s()<>]+", artifact):
        raise UsageError(f"--artifact {artifact}: give the address of a page, such as https://...")
    parts = text.rstrip("\n").split("\n\n", 2)
    return "\n\n".join([*parts[:2], f"[The report and all results]({artifact})", *parts[2:]])[:_MOST]


def _github() -> _Forge | None:
    number = _number_of_request(os.environ.get("GITHUB_EVENT_PATH", ""))
    token, repository = os.environ.get("GITHUB_TOKEN", ""), os.environ.get("GITHUB_REPOSITORY", "")
    if number is None:
        return None
    if not token:
        raise UsageError("GITHUB_TOKEN: give the job's token (env: GITHUB_TOKEN: ${{ github.token }})")
    api, page = os.environ.get("GITHUB_API_URL", ""), os.environ.get("GITHUB_SERVER_URL", "")
    issues = f"{api or 'https://api.github.com'}/repos/{repository}/issues"
    run = os.environ.get("GITHUB_RUN_ID", "")
    return _Forge(
        f"{issues}/{number}/comments",
        f"{issues}/comments/{{id}}",
        {"authorization": f"Bearer {token}", "accept": "application/vnd.github+json"},
        "PATCH",
        # Anybody may write a comment that begins like ours, and change it after we did.
        lambda each: (each.get("user") or {}).get("type") == "Bot" or each.get("author_association") in _TRUSTED,
        f"{page}/{repository}/actions/runs/{run}" if page and run else "",
    )


def _number_of_request(event: str) -> int | None:
    """The number of the pull request in GitHub's file of the event; None for other events."""
    if not event:
        return None
    try:
        with open_input(event) as stream:
            data = msgspec.json.decode(stream.read())
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {event} cannot be read: {error}") from None
    request = data.get("pull_request") if isinstance(data, dict) else None
    number = request.get("number") if isinstance(request, dict) else None
    return number if isinstance(number, int) else None


def _gitlab() -> _Forge | None:
    number, token = os.environ.get("CI_MERGE_REQUEST_IID", ""), os.environ.get("EVALQ_GITLAB_TOKEN", "")
    if not number:
        return None
    if not token:
        raise UsageError("EVALQ_GITLAB_TOKEN: set it to a project access token that may write comments (scope api)")
    api, project = os.environ.get("CI_API_V4_URL", ""), os.environ.get("CI_PROJECT_ID", "")
    notes, job = f"{api}/projects/{project}/merge_requests/{number}/notes", os.environ.get("CI_JOB_URL", "")
    return _Forge(
        notes,
        f"{notes}/{{id}}",
        {"private-token": token},
        "PUT",
        lambda each: not each.get("system"),
        f"{job}/artifacts/browse" if job else "",
    )


def _post(forge: _Forge, text: str) -> None:
    import httpx

    marker = _MARKER.match(text)
    assert marker is not None, "checked when the file was read"
    with httpx.Client(headers=forge.headers, timeout=_SECONDS, follow_redirects=False) as client:
        try:
            last = next((each["id"] for each in _listed(client, forge) if _is_last(each, marker[0], forge)), None)
            if last is None:
                _checked(client.post(forge.listed, json={"body": text}))
            else:
                _checked(client.request(forge.update, forge.one.format(id=last), json={"body": text}))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise InfrastructureError(
                f"the comment is not posted: {forge.listed}: {type(error).__name__}: {error}; run the job again"
            ) from error
    click.echo("the comment is posted" if last is None else "the comment is renewed", err=True)


def _is_last(each: Mapping[str, Any], marker: str, forge: _Forge) -> bool:
    body = str(each.get("body") or "").replace("\r\n", "\n")
    return body.startswith(marker.rstrip("\n")) and isinstance(each.get("id"), int) and forge.ours(each)


def _listed(client: httpx.Client, forge: _Forge) -> Iterator[Mapping[str, Any]]:
    for page in range(1, _PAGES + 1):
        found = _checked(client.get(forge.listed, params={"per_page": _PER_PAGE, "page": page}))
        yield from (each for each in found if isinstance(each, dict))
        if len(found) < _PER_PAGE:
            return


def _checked(answer: httpx.Response) -> list[Any]:
    """The list in an answer of the forge. Raises InfrastructureError, with what was received."""
    if answer.status_code // 100 != 2:
        raise InfrastructureError(
            f"the comment is not posted: {answer.request.url} answered with status {answer.status_code}: "
            f"{answer.text[:80]!r}; check the token's permissions (GitHub: pull-requests: write)"
        )
    try:
        data = answer.json()
    except ValueError:
        raise InfrastructureError(
            f"the comment is not posted: {answer.request.url} answered with no JSON: {answer.text[:80]!r}"
        ) from None
    return data if isinstance(data, list) else []


COMMAND = command(
    _comment,
    click.Argument(["file"], type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.Option(["--artifact"], default="", metavar="URL", help="Page of the results [the job's own]."),
)
