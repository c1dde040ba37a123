"""What deploy/ci gives to forges: valid by their schemas, and its own steps, word for word, end as the gate decides."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from evalq.evalcore.evaluators.vs.sample import GOLDEN, sample_cases, write_outputs
from tests.bench import hostile_ci
from tests.deploy.programs import program, run
from tests.integration.harness import EVALQ, clean_environment
from tests.unit.comparing.conftest import BAD, GOOD

TOP = Path(__file__).parents[2]
CI = TOP / "deploy" / "ci"


def suite(folder: Path, passes: int) -> None:
    """Forty transcripts, so many of which comply, and a policy about them."""
    lines = [json.dumps({"id": f"t{n}", "actual_output": GOOD if n < passes else BAD}) for n in range(40)]
    (folder / "t.jsonl").write_text("\n".join(lines) + "\n")
    runs = [{"evaluator": "verification", "inputs": ["t.jsonl"]}]
    policy = {"gates": [{"metric": "verification.pass_rate", "min": 0.7}]}
    (folder / "evalq.yaml").write_text(yaml.safe_dump({"runs": runs, "policy": policy}))


def shell(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a runner's shell would, with evalq installed."""
    shim = folder / "bin" / "evalq"
    if not shim.exists():
        shim.parent.mkdir(exist_ok=True)
        # Like an installed program, it does not look for modules in the current folder.
        shim.write_text(f'#!/bin/sh\nexec {EVALQ[0]} -P {" ".join(EVALQ[1:])} "$@"\n')
        shim.chmod(0o755)
    # What a job installs is installed here: only that it is asked for is seen.
    python = folder / "bin" / "python"
    if not python.exists():
        python.write_text(
            f'#!/bin/sh\ncase "$*" in "-P -m pip"*) exit 0;; *"-m pip"*) exit 9;; esac\nexec {EVALQ[0]} "$@"\n'
        )
        python.chmod(0o755)
    variables = clean_environment(**environment)
    variables["PATH"] = f"{shim.parent}:{variables['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("schema", "file"), [("github-actions", TOP / "action.yml"), ("gitlab-ci", CI / "gitlab" / "evalq.yml")]
)
def test_what_forges_read_is_valid(schema: str, file: Path, tmp_path: Path) -> None:
    """By the forge's own schema, which refuses what is not."""
    check = [program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}"]
    done = run(*check, file)
    assert done.returncode == 0, done.stdout + done.stderr
    document = yaml.safe_load(file.read_text())
    (tmp_path / "odd.yml").write_text(yaml.safe_dump({**document, "runs": 3, "job": {"script": {"a": 1}}}))
    assert run(*check, tmp_path / "odd.yml").returncode == 1


def test_the_scripts_have_no_findings() -> None:
    """The wrapper's, and those of the action's steps and of the job."""
    steps = yaml.safe_load((TOP / "action.yml").read_text())["runs"]["steps"]
    job = yaml.safe_load((CI / "gitlab" / "evalq.yml").read_text())[".evalq-gate"]
    assert run(program("shellcheck"), CI / "run_vs_tests.sh").returncode == 0
    for script in (
        *(step["run"] for step in steps if "run" in step),
        "\n".join([*job["before_script"], *job["script"]]),
    ):
        done = subprocess.run(
            [program("shellcheck"), "-s", "bash", "-"], input=script, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


class Action:
    """The action's own steps, as a runner takes them: inputs, outputs, conditions, and the shell of each step.

    Steps that use other actions are left out; of one that keeps the artifact the address is known.
    """

    def __init__(self, folder: Path, **inputs: str) -> None:
        document = yaml.safe_load((TOP / "action.yml").read_text())
        self.folder = folder
        self.steps = document["runs"]["steps"]
        self.values = {f"inputs.{name}": str(each["default"]) for name, each in document["inputs"].items()}
        assert {f"inputs.{name.replace('_', '-')}" for name in inputs} <= self.values.keys()
        self.values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        self.values |= {"github.action_path": str(TOP), "github.token": "the job's token"}
        self.values["steps.artifact.outputs.artifact-url"] = "https://forge.example/artifacts/1"
        self.summary, self.out, self.used = folder / "step.md", "", 0
        self.values["inputs.token"] = self.values["inputs.token"].replace("${{ github.token }}", "the job's token")

    def run(self, **environment: str) -> int:
        """The exit code of the whole action."""
        code = 0
        for step in self.steps:
            if not self._wanted(step.get("if", "true"), code):
                continue
            if "uses" in step:
                self.used += 1
                continue
            outputs = self.folder / "outputs.txt"
            outputs.write_text("")
            given = {name: self._filled(value) for name, value in step.get("env", {}).items()}
            files = {"GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_OUTPUT": str(outputs)}
            done = shell(
                step["run"], self.folder, GITHUB_SHA="0a1b", GITHUB_ACTIONS="true", **files, **given, **environment
            )
            self.out += done.stdout + done.stderr
            code = code or done.returncode
            for line in outputs.read_text().splitlines():
                name, _, value = line.partition("=")
                self.values[f"steps.{step['id']}.outputs.{name}"] = value
        return code

    def _filled(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            return next((known for name in found[1].split(" || ") if (known := self.values.get(name.strip(), ""))), "")

        return re.sub(r"\$\{\{(.*?)\}\}", value, text)

    def _wanted(self, condition: str, code: int) -> bool:
        """Conditions are joined by && and compare with the empty text; without always() a failure ends the action."""
        parts = [part.strip() for part in condition.split("&&")]
        if code and "always()" not in parts:
            return False
        names = [part.removesuffix(" != ''") for part in parts if part not in ("true", "always()")]
        return all(self.values.get(name, "") for name in names)


@pytest.mark.parametrize(("passes", "code"), [(40, 0), (10, 1), (29, 4)])
def test_the_action_ends_as_the_gate_decides(tmp_path: Path, passes: int, code: int) -> None:
    """Its own steps, with the defaults of its inputs: the summary and annotations are shown whatever was decided."""
    suite(tmp_path, passes)
    action = Action(tmp_path)
    assert action.run() == code, action.out
    decided = {0: "GO", 1: "NO-GO", 4: "INCONCLUSIVE"}[code]
    assert action.values["steps.gate.outputs.decided"] == decided
    text = action.summary.read_text()
    assert text.startswith(f"# {decided}")
    assert "[The report and all results](https://forge.example/artifacts/1)" in text
    assert {0: "::notice", 1: "::error", 4: "::warning"}[code] in action.out or not code, action.out
    assert json.loads((tmp_path / "evalq-results" / "gate.json").read_text())["decided"] == decided
    assert action.used == 2, "Python is set up, and the results are kept"


def test_the_action_shows_nothing_of_an_earlier_attempt(tmp_path: Path) -> None:
    """Where the suite file is wrong and nothing is written, what lies there of another commit is not shown as if."""
    suite(tmp_path, 40)
    with (tmp_path / "evalq.yaml").open("a") as stream:
        stream.write("polcy: {}\n")
    (tmp_path / "evalq-results").mkdir()
    (tmp_path / "evalq-results" / "summary.md").write_text("# GO\n")
    (tmp_path / "evalq-results" / "annotations.txt").write_text("")
    action = Action(tmp_path)
    assert action.run() == 2
    assert not action.summary.exists()
    assert action.values["steps.gate.outputs.decided"] == "ERROR"


def test_the_action_runs_no_module_of_the_checkout(tmp_path: Path) -> None:
    """Python looks for modules in the current folder first, which a pull request wrote, and the step has the keys."""
    suite(tmp_path, 40)
    for name in ("json", "sys", "pip", "msgspec", "click", "evalq"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'a').write(__name__)\n")
    action = Action(tmp_path)
    assert action.run() == 0, action.out
    assert not (tmp_path / "ran").exists()


def test_the_action_s_keys_are_masked_and_reach_the_evaluation_alone(tmp_path: Path) -> None:
    """A faulty line ends it before anything runs; what a fork does not get is said."""
    suite(tmp_path, 40)
    action = Action(tmp_path, keys="  ONE_KEY=se=cret\n\nOTHER_KEY=\n")
    seen = tmp_path / "seen.txt"
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "evalq"
    shim.write_text(f'#!/bin/sh\nenv >> {seen}\nexec {" ".join(EVALQ)} "$@"\n')
    shim.chmod(0o755)
    assert action.run() == 0, action.out
    assert "::add-mask::se=cret\n" in action.out
    assert "OTHER_KEY is empty; pull requests of forks get no secrets" in action.out
    lines = seen.read_text().splitlines()
    assert lines.count("ONE_KEY=se=cret") == 1, "the comment's command gets no keys"
    assert not [line for line in lines if line.startswith("KEYS=")]
    for faulty in ("lower=1", "NO_SIGN", "=x", "A B=c"):
        assert Action(tmp_path, keys=faulty).run() == 2


def test_the_action_passes_on_what_it_is_given(tmp_path: Path) -> None:
    """The targets file and the folder; a live suite is gated by it."""
    cases = [{"id": f"c{n}", "input": "say yes", "checks": ["is-json"]} for n in range(10)]
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump({"cases": cases}))
    runs = [{"evaluator": "checks", "cases": "cases.yaml", "target": "echo", "repeat": 4}]
    policy = {"gates": [{"metric": "checks.pass_rate", "min": 0.7}]}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({"runs": runs, "policy": policy}))
    target = {"kind": "command", "argv": ["sh", "-c", 'cat > /dev/null; echo \'{"output": {"a": 1}}\'']}
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump({"targets": {"echo": target}}))
    action = Action(tmp_path, suite="suite.yaml", targets="targets.yaml", results="out", comment="false")
    assert action.run() == 0, action.out
    assert (tmp_path / "out" / "runs" / "checks" / "report.html").is_file()
    assert Action(tmp_path, suite="suite.yaml", results="out").run() == 2, "a suite brings no targets"


class Comments(http.server.BaseHTTPRequestHandler):
    """A forge's list of comments, as far as a bot needs it."""

    comments: ClassVar[list[dict[str, Any]]] = []
    seen: ClassVar[list[tuple[str, str, str]]] = []
    refuse: ClassVar[bool] = False

    def answer(self) -> None:
        """List, add or change a comment."""
        token = self.headers.get("authorization") or self.headers.get("private-token") or ""
        self.seen.append((self.command, self.path.partition("?")[0], token))
        size = int(self.headers.get("content-length") or 0)
        data = json.loads(self.rfile.read(size)) if size else {}
        if self.command == "POST":
            bot = {"type": "Bot"}
            self.comments.append({"id": len(self.comments) + 1, "user": bot, **data})
        elif self.command in ("PATCH", "PUT"):
            self.comments[int(self.path.rpartition("/")[2]) - 1] |= data
        body = json.dumps(self.comments if self.command == "GET" else {}).encode()
        self.send_response(403 if self.refuse else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_PUT = answer  # noqa: N815 - as the class before it calls them

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def forge() -> Iterator[str]:
    """Its address; no comment is there yet."""
    Comments.comments, Comments.seen, Comments.refuse = [], [], False
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Comments) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def github(folder: Path, forge: str, event: dict[str, Any]) -> dict[str, str]:
    (folder / "event.json").write_text(json.dumps(event))
    return {
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_API_URL": forge,
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_REPOSITORY": "me/agents",
        "GITHUB_RUN_ID": "7",
    }


def test_the_action_keeps_one_comment(tmp_path: Path, forge: str) -> None:
    """Renewed by each run, never somebody else's that begins like it; none on a push; a refusal decides nothing."""
    suite(tmp_path, 10)
    stranger = {
        "id": 1,
        "user": {"type": "User"},
        "author_association": "NONE",
        "body": "<!-- evalq-comment: evalq -->",
    }
    Comments.comments.append(stranger)
    request = github(tmp_path, forge, {"pull_request": {"number": 12}})
    assert Action(tmp_path).run(**request) == 1
    suite(tmp_path, 40)
    shutil.rmtree(tmp_path / "evalq-results")
    assert Action(tmp_path).run(**request) == 0
    assert [each["body"].split("\n")[1][:7] for each in Comments.comments[1:]] == ["# GO: e"]
    assert stranger["body"] == "<!-- evalq-comment: evalq -->"
    assert "[The report and all results](https://forge.example/artifacts/1)" in Comments.comments[1]["body"]
    where = "/repos/me/agents/issues"
    token = "Bearer the job's token"  # noqa: S105 - of a forge that is none
    assert Comments.seen == [
        ("GET", f"{where}/12/comments", token),
        ("POST", f"{where}/12/comments", token),
        ("GET", f"{where}/12/comments", token),
        ("PATCH", f"{where}/comments/2", token),
    ]
    Comments.refuse = True
    shutil.rmtree(tmp_path / "evalq-results")
    action = Action(tmp_path)
    assert action.run(**request) == 0
    assert "answered with status 403" in action.out
    assert "::warning title=evalq gate::The comment is not posted" in action.out
    Comments.seen.clear()
    shutil.rmtree(tmp_path / "evalq-results")
    assert Action(tmp_path).run(**github(tmp_path, forge, {"ref": "refs/heads/main"})) == 0
    assert not Comments.seen


def test_the_gitlab_job_writes_the_report_that_it_names(tmp_path: Path, forge: str) -> None:
    """Its exit code for "cannot tell" is the one that it lets pass, and with a token it posts its comment."""
    suite(tmp_path, 29)
    job = yaml.safe_load((CI / "gitlab" / "evalq.yml").read_text())[".evalq-gate"]
    script = "\n".join([*job["before_script"], *job["script"]])
    variables = {**job["variables"], "CI_COMMIT_SHA": "0a1b", "GITLAB_CI": "true"}
    done = shell(script, tmp_path, **variables)
    assert [done.returncode] == job["allow_failure"]["exit_codes"], done
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).is_file()
    assert not Comments.seen
    request = {"CI_API_V4_URL": forge, "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "5", "EVALQ_GITLAB_TOKEN": "t"}
    shutil.rmtree(tmp_path / "evalq-results")
    done = shell(script, tmp_path, **variables, **request, CI_JOB_URL="https://lab.example/j/1")
    assert done.returncode == 4, done
    assert Comments.seen[-1] == ("POST", "/projects/3/merge_requests/5/notes", "t")
    assert "(https://lab.example/j/1/artifacts/browse)" in Comments.comments[0]["body"]


@pytest.mark.parametrize(("words", "cases"), [(["--all"], 30), (["--level", "Full"], 15), (["--agent", "03"], 3)])
def test_the_agents_tests_run_by_their_script(tmp_path: Path, words: list[str], cases: int) -> None:
    """The forms of the specification, with JSON on standard output and nothing else."""
    with (tmp_path / "outputs.jsonl").open("wb") as stream:
        write_outputs(stream, sample_cases(), repeats=1, seed=1)
    (tmp_path / "golden.yaml").write_text(GOLDEN.read_text())
    done = shell(f'"{CI}/run_vs_tests.sh" {" ".join(words)} --format json --inline > results.json', tmp_path)
    assert done.returncode == 0, done
    assert json.loads((tmp_path / "results.json").read_text())["test_run"]["total_tests"] == cases


def test_a_hostile_server_turns_no_unchanged_prompt_red(tmp_path: Path) -> None:
    """8 % status 429, 3 % 500, 1 % a proxy's page, 1 % cut: `python -m tests.bench.hostile_ci` does it twenty times."""
    with hostile_ci.hostile_server(3) as url:
        hostile_ci.prepare(tmp_path, url)
        unchanged, worse = (hostile_ci.job(tmp_path, name, f"{name}-1") for name in ("unchanged", "worse"))
    assert unchanged.decided in ("GO", "INCONCLUSIVE")
    assert worse.decided in ("NO-GO", "SUSPECT")
    assert (unchanged.code, worse.code) == (0 if unchanged.decided == "GO" else 4, 1 if worse.decided == "NO-GO" else 4)
