"""Speculative decoding with the bundled drafter beside everything that llama.cpp drafts with."""
import json
import pathlib
import tempfile

import llama
from decoding import prompt_ids, threads
from measure import MODEL, PEERS, ROOT, call, cell, field, in_turn, show_table

DRAFTER = ROOT / "recipes" / "smollm2" / "drafter"
HUMAN_EVAL = ("Complete this Python function. Answer with the whole function.\n\n"
              "```python\n{}\n```")


def write_tasks(folder, limit):
    """Held-out prompts and HumanEval as prompt files for both programs."""
    held_out = (ROOT / "prompts" / "heldout.jsonl").read_text().splitlines()[:limit]
    problems = (ROOT / "assets" / "HumanEval.jsonl").read_text().splitlines()[:limit]
    files = {"heldout": pathlib.Path(folder) / "heldout.jsonl",
             "humaneval": pathlib.Path(folder) / "humaneval.jsonl"}
    files["heldout"].write_text("\n".join(held_out) + "\n")
    files["humaneval"].write_text("".join(
        json.dumps({"id": row["task_id"], "prompt": HUMAN_EVAL.format(row["prompt"].rstrip("\n"))})
        + "\n" for row in map(json.loads, problems)))
    return files


def ours(build, model, tasks, max_new):
    report = call([build / "dflash-cpp", "eval", "--target", model, "--drafter", DRAFTER,
                   "--proposer", "drafter", "auto", "all", "--tasks", tasks, "--max-new", max_new,
                   "--json", "--quiet"])
    if not report:
        return None
    report = report["sets"][0]
    out = {"plain": report["plain"]["speed"]["decode_tokens_per_second"],
           "lossless": report["lossless"]}
    for arm in report["arms"]:
        out[arm["name"]] = {"tau": arm["acceptance"]["tau"],
                            "tau_without_loops": arm["tau_without_loops"],
                            "tokens_per_second": arm["speed"]["decode_tokens_per_second"]}
    return out


def peer_arms(build):
    """Its own n-grams, and our drafter with whole blocks and short ones. There its two thread
    pools, the target's and the drafter's, must not spin while they wait (10 tok/s instead of 27 on
    two cores), and its backend does not sample: it would sort the vocabulary for every row."""
    drafter = llama.exported(build / "dflash-cpp", DRAFTER)

    def drafting(most):
        return ("-md", drafter, "--spec-type", "draft-dflash", "--spec-draft-n-max", most,
                "--spec-draft-n-min", 0, "--no-spec-draft-backend-sampling", "--poll", 0,
                "--spec-draft-poll", 0)
    return {"plain": (), "its ngram-simple": ("--spec-type", "ngram-simple"),
            "its ngram-cache": ("--spec-type", "ngram-cache"),
            "our drafter, 7 drafts": drafting(7), "our drafter, 3 drafts": drafting(3)}


def peer(model, ids, spec, max_new):
    def run():
        try:
            with llama.Server(model, threads(), spec=spec) as server:
                return server.one_by_one(ids, max_new)
        except Exception as error:  # a peer that fails is a line of the table, not our end
            print(f"  not measured: llama-server {' '.join(map(str, spec))}: {error}")
            return None
    return run


def speculation(build, short):
    """By storage and task set: tokens a second of every arm, decoding alone."""
    limit, max_new, rounds = (2, 16, 1) if short else (8, 128, 2)
    out = {}
    PEERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        files = write_tasks(folder, limit)
        for name, model in (("bf16", llama.bf16_model()), ("blocks of the file", MODEL)):
            for task, path in files.items() if model else ():
                runners = {"ours": lambda m=model, p=path: ours(build, m, p, max_new)}
                if llama.available():
                    (pathlib.Path(folder) / "answers.jsonl").unlink(missing_ok=True)
                    ids = prompt_ids(build, path, folder)
                    for arm, spec in peer_arms(build).items():
                        runners[f"llama.cpp, {arm}"] = peer(model, ids, spec, max_new)
                out.setdefault(name, {})[task] = in_turn(runners, rounds)
    return out


def arms(found):
    """name -> {tokens_per_second, tau} as spreads, ours taken apart by arm."""
    table = {}
    for name, runs in found.items():
        if name != "ours":
            if runs:
                table[name] = {key: field({name: runs}, key)[name]
                               for key in ("tokens_per_second", "tau")}
            continue
        for arm in (runs[0] if runs else {}):
            if arm in ("plain", "lossless"):
                continue
            table[f"ours, {arm}"] = {key: field({arm: [run[arm] for run in runs]}, key)[arm]
                                     for key in ("tokens_per_second", "tau")}
        if runs:
            plain = [{"tokens_per_second": run["plain"], "tau": 1.0} for run in runs]
            table["ours, plain"] = {key: field({"plain": plain}, key)["plain"]
                                    for key in ("tokens_per_second", "tau")}
    return table


def ratios(results):
    best, over_tau = {"ours": [], "llama.cpp": []}, []
    tables = {name: {task: arms(found) for task, found in tasks.items()}
              for name, tasks in results["speculation"].items()}
    for task in ("heldout", "humaneval"):
        for side in best:
            speeds = [row["tokens_per_second"]["median"] for tasks in tables.values()
                      for name, row in tasks.get(task, {}).items() if name.startswith(side)]
            if speeds:
                best[side].append(max(speeds))
        for tasks in tables.values():
            table = tasks.get(task, {})
            plain = table.get("ours, plain")
            drafted = [row for name, row in table.items()
                       if name.startswith("ours, ") and name not in ("ours, plain", "ours, lookup")]
            for row in drafted if plain else ():
                speedup = row["tokens_per_second"]["median"] / plain["tokens_per_second"]["median"]
                over_tau.append(speedup / row["tau"]["median"])
    ratio = None
    if best["ours"] and len(best["ours"]) == len(best["llama.cpp"]):
        ratio = sum(best["ours"]) / sum(best["llama.cpp"])
    return {"spec_vs_best_llamacpp": ratio, "speedup_over_tau": min(over_tau, default=None)}


def show(results):
    for name, tasks in results["speculation"].items():
        for task, found in tasks.items():
            show_table(f"{task}, {name}: decoding one prompt at a time, greedy",
                       ["", "tau", "tok/s"],
                       [[arm, cell(row["tau"]), cell(row["tokens_per_second"], "{:.1f}")]
                        for arm, row in arms(found).items()])
