#!/usr/bin/env python3
"""The command line from outside: every subcommand, its files and its exit codes, as a user or a script meets them.

Run by ctest as `cli_test.py CODA PROGRAMS`: the built program and the folder of .coda files. Standard library only.
Every mistake must end with exit code 2, a message that names the argument and the way out, and no file made or changed.
"""
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CODA, PROGRAMS = "", Path()
SUBCOMMANDS = ["train", "run", "explain", "check", "bench"]
# Of the programs' sizes: odd, none a multiple of a tile, N even for the pairs and a multiple of what divides it.
SIZES = {"M": 5, "N": 12, "K": 7, "F": 6, "V": 11, "S": 9, "H": 3, "G": 3, "hd": 4, "rd": 2, "R": 3, "NA": 5, "NB": 6,
         "NQ": 12, "NK": 12}
TINY = ["--layers", "1", "--dim", "32", "--heads", "2", "--kv-heads", "1", "--ff", "40", "--seq", "16", "--batch", "4",
        "--eval-batches", "2", "--threads", "1"]


def npy(path, values, descr="<f4", shape=None, version=1, header=None):
    """A .npy file by hand: what NumPy writes, and what it never would."""
    codes = {"<f2": "e", "<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", ">f4": "f", "|u1": "B", "<c8": "f"}
    shape = (len(values),) if shape is None else shape
    text = header or "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, repr(tuple(shape)))
    head = 6 + 2 + (2 if version == 1 else 4)
    text += " " * (-(head + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    body = struct.pack((">" if descr[0] == ">" else "<") + codes[descr] * len(values), *values)
    Path(path).write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + body)


def read_npy(path):
    data = Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0
    head = eval(data[10:10 + length].decode())  # a Python literal by the format's definition; our own file
    count = math.prod(head["shape"])
    return head["descr"], head["shape"], struct.unpack("<%d%s" % (count, {"<f4": "f", "<i4": "i"}[head["descr"]]),
                                                       data[10 + length:])


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="coda-cli-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def coda(self, *args, code=0, env=None):
        done = subprocess.run([CODA, *map(str, args)], cwd=self.dir, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, code, f"coda {' '.join(map(str, args))}\n{done.stdout[-2000:]}{done.stderr}")
        return done

    def files(self):
        return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(self.dir.rglob("*"))}

    def refused(self, *args, words):
        """Exit code 2, a message with all `words`, nothing printed as a result, nothing made or changed."""
        before = self.files()
        done = self.coda(*args, code=2)
        for word in words:
            self.assertIn(word, done.stderr, f"coda {' '.join(map(str, args))}")
        self.assertEqual(done.stdout, "")
        self.assertNotIn("terminate called", done.stderr)
        self.assertEqual(self.files(), before, f"coda {' '.join(map(str, args))} left something behind")
        return done

    def text(self, name="text.txt", lines=150):
        path = self.dir / name
        path.write_text("".join(f"And the {i * i % 89} sons went out, and it was so.\n" for i in range(lines)))
        return path


class Help(Case):
    def test_every_option_once(self):
        for command in SUBCOMMANDS:
            text = self.coda(command, "--help").stdout
            options = re.findall(r"^  (?:-h,)?(--[a-z-]+)", text, re.M)
            self.assertGreaterEqual(len(options), 5, command)
            self.assertEqual(len(options), len(set(options)), command)
            self.assertIn("--json", options)
            for line in re.findall(r"^  (?:-h,)?--.*(?:\n {10,}\S.*)?", text, re.M):  # each with words of explanation
                self.assertRegex(line, r"\s[A-Z`c][^\n]{5,}$", command)

    def test_overview_and_version(self):
        text = self.coda("--help").stdout
        for command in SUBCOMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} +[A-Z]")
        self.assertRegex(self.coda("--version").stdout, r"^\d+\.\d+\.\d+\n$")

    def test_unknown_words(self):
        for command in SUBCOMMANDS:
            extra = [PROGRAMS / "swiglu.coda"] if command == "run" else []
            self.refused(command, *extra, "--bogus", words=["--bogus", "--help"])
        self.refused("trian", words=["subcommand", "'trian'", "train, run, explain, check, bench"])
        self.refused(words=["subcommand"])


class Run(Case):
    def sized(self, program, **sizes):
        """--size options for a program: asks it which it needs."""
        given = []
        while True:
            done = subprocess.run([CODA, "explain", str(program), *given], capture_output=True, text=True, timeout=60)
            missing = re.search(r"size (\w+): no value", done.stderr)
            if missing is None:
                self.assertEqual(done.returncode, 0, done.stderr)
                return given
            name = missing[1]
            given += ["--size", f"{name}={sizes.get(name, SIZES[name])}"]

    def test_every_program_on_both_backends(self):
        programs = sorted(PROGRAMS.glob("*.coda"))
        self.assertGreater(len(programs), 100)
        for program in programs:
            sizes = self.sized(program)
            found = {}
            for backend in ["cpu", "interpreter"]:
                shown = self.coda("run", program, *sizes, "--backend", backend, "--json", "o.json").stdout
                found[backend] = json.loads((self.dir / "o.json").read_text())
                for name in found[backend]["outputs"]:
                    self.assertRegex(shown, rf"(?m)^{name}: \w+ \[\d+,\d+\]")
            self.assertEqual(found["cpu"]["program"], program.stem)
            self.assertEqual(found["cpu"]["sizes"], found["interpreter"]["sizes"])
            self.assertEqual(found["cpu"]["outputs"].keys(), found["interpreter"]["outputs"].keys())
            self.assertTrue(found["cpu"]["outputs"])
            for name, a in found["cpu"]["outputs"].items():
                b = found["interpreter"]["outputs"][name]
                self.assertEqual((a["dtype"], a["shape"]), (b["dtype"], b["shape"]))
                self.assertEqual(len(a["values"]), a["shape"][0] * a["shape"][1])
                self.close(f"{program.stem}: {name}", a["dtype"], a["values"], b["values"])

    def close(self, what, dtype, a, b):
        scale = max([abs(x) for x in b if x is not None], default=0)
        tolerance = {"bf16": 2**-6, "f16": 2**-9, "f32": 2**-15, "i32": 0}[dtype] * scale
        for x, y in zip(a, b):
            if x is None or y is None:  # NaN
                self.assertEqual(x, y, what)
            else:
                self.assertLessEqual(abs(x - y), tolerance, what)

    def test_npy_in_and_out(self):
        # out = silu(x wgᵀ) · (x wuᵀ), small whole numbers so that every type of file holds them.
        x, g, u = [1, -2, 3, 0, 1, 2], [1, 0, 2, -1, 1, 1], [2, 1, 0, 1, 1, -1]
        expected = []
        for i in range(2):
            for j in range(2):
                a = sum(x[3 * i + k] * g[3 * j + k] for k in range(3))
                b = sum(x[3 * i + k] * u[3 * j + k] for k in range(3))
                expected.append(a / (1 + math.exp(-a)) * b)
        for descr in ["<f2", "<f4", "<f8", "<i4", "<i8"]:
            for version in [1, 2]:
                for name, values in {"x": x, "wg": g, "wu": u}.items():
                    npy(self.dir / f"{name}.npy", values, descr, (2, 3), version)
                (self.dir / "out").mkdir(exist_ok=True)
                self.coda("run", PROGRAMS / "swiglu.coda", "--dtype", "f32", "--save", "out",
                          *[w for n in ["x", "wg", "wu"] for w in ["--input", f"{n}={n}.npy"]])
                kind, shape, values = read_npy(self.dir / "out" / "o.npy")
                self.assertEqual((kind, shape), ("<f4", (2, 2)))
                for a, b in zip(values, expected):
                    self.assertAlmostEqual(a, b, places=5)
        self.assertEqual([p for p in os.listdir(self.dir / "out") if not p.endswith(".npy")], [])
        # What was saved goes in again; integers come back as such.
        self.coda("run", PROGRAMS / "bias_residual.coda", *self.sized(PROGRAMS / "bias_residual.coda", N=2, M=2))
        npy(self.dir / "w.npy", [1, 0, 0, 1, -1, 3], "<f4", (3, 2))
        npy(self.dir / "x2.npy", [5, 1, -2, 7], "<f4", (2, 2))
        npy(self.dir / "r.npy", [1, 2], "<f4", (2,))
        self.coda("run", PROGRAMS / "rmsnorm_argmax.coda", "--save", "out",
                  "--input", "x=x2.npy", "--input", "w=w.npy", "--input", "r=r.npy")
        integers = [read_npy(self.dir / "out" / f) for f in os.listdir(self.dir / "out")]
        integers = [i for i in integers if i[0] == "<i4"]
        self.assertEqual(integers, [("<i4", (2, 1), (0, 2))])  # 5 1 -2 and -2 7 23

    def test_seed_and_order_of_options(self):
        args = ["run", PROGRAMS / "swiglu.coda", *self.sized(PROGRAMS / "swiglu.coda"), "--threads", 1]
        one, again, two = (self.coda(*args, "--seed", s).stdout for s in [1, 1, 2])
        self.assertEqual(one, again)
        self.assertNotEqual(one, two)

    def test_bad_npy_files(self):
        program = PROGRAMS / "swiglu.coda"

        def bad(*words, name="x"):
            self.refused("run", program, "--size", "M=2", "--size", "K=3", "--size", "F=2", "--input", f"x={name}.npy",
                         words=[f"{name}.npy", *words])

        bad("No such file", name="missing")
        (self.dir / "folder.npy").mkdir()
        bad("a directory", name="folder")
        for content in [b"", b"not numpy at all, but long enough", b"\x93NUMPY\x01\x00"]:
            (self.dir / "x.npy").write_bytes(content)
            bad("no .npy file")
        npy(self.dir / "x.npy", [1.0] * 6, "<f4", (2, 3))
        whole = (self.dir / "x.npy").read_bytes()
        (self.dir / "x.npy").write_bytes(whole[:-1])
        bad("23 bytes of elements", "24")
        (self.dir / "x.npy").write_bytes(whole + b"\0")
        bad("25 bytes of elements")
        (self.dir / "x.npy").write_bytes(whole[:40])
        bad("truncated header")
        npy(self.dir / "x.npy", [1.0] * 6, ">f4", (2, 3))
        bad(">f4", "little endian")
        npy(self.dir / "x.npy", [1.0] * 6, "<c8", (3,))
        bad("<c8")
        npy(self.dir / "x.npy", [1.0] * 6, header="{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }")
        bad("Fortran")
        npy(self.dir / "x.npy", [1.0] * 6, header="{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }")
        bad("element type")
        npy(self.dir / "x.npy", [1.0] * 6, header="{'descr': '<f4', 'fortran_order': False, }")
        bad("shape")
        npy(self.dir / "x.npy", [1.0] * 6, header="{'descr': '<f4', 'shape': (99999999999, 99999999999), }")
        bad("shape larger than the file")
        npy(self.dir / "x.npy", [1.0] * 6, shape=(1, 1, 2, 3))
        bad("4 dimensions")

    def test_mistakes(self):
        program = PROGRAMS / "rmsnorm_cross_entropy.coda"
        sizes = ["--size", "M=2", "--size", "K=3", "--size", "V=4"]
        npy(self.dir / "x.npy", [1.0] * 6, shape=(2, 3))
        npy(self.dir / "w.npy", [1.0] * 8, shape=(4, 2))

        def bad(*args, words):
            self.refused("run", program, *args, words=words)

        self.refused("run", "none.coda", words=["none.coda", "Check the path"])
        self.refused("run", self.dir, words=[str(self.dir), "a directory"])
        (self.dir / "bad.coda").write_text("program p\nin x: f32[M,N]\nout y: f32[M,N] = frobnicate(x)\n")
        self.refused("run", "bad.coda", words=["bad.coda:3:", "frobnicate"])
        (self.dir / "two.coda").write_text(program.read_text() + "\n" + (PROGRAMS / "swiglu.coda").read_text())
        self.refused("run", "two.coda", words=["--program", "2 programs", "rmsnorm_cross_entropy, swiglu"])
        bad("--program", "other", words=["--program", "'other'", "rmsnorm_cross_entropy"])
        bad(words=["size K", "--size K="])
        for size in ["M", "M=", "=3", "M=x", "M=3.5", "M=-1", "M=99999999999999999999", "M=3x"]:
            bad("--size", size, words=["--size", f"'{size.split('=')[-1] if '=' in size[1:-1] else size}'"])
        bad("--size", "M=2", "--size", "M=3", words=["--size M", "twice"])
        bad(*sizes, "--size", "Q=3", words=["--size Q", "K, M, V"])
        bad(*sizes, "--size", "M=1000000000000", "--size", "M=3", words=["twice"])
        bad("--size", "M=1000000000000", "--size", "K=1000000", "--size", "V=4", words=["size"])
        bad(*sizes, "--input", "q=x.npy", words=["--input q", "x, w, r, t"])
        bad(*sizes, "--input", "loss=x.npy", words=["--input loss", "x, w, r, t"])
        bad(*sizes, "--input", "ignore=x.npy", words=["--input ignore", "--const ignore="])
        bad(*sizes, "--input", "x=x.npy", "--input", "x=x.npy", words=["--input x", "twice"])
        bad(*sizes, "--input", "r=x.npy", words=["r: size 3 for 1"])
        bad("--input", "x=x.npy", "--input", "w=w.npy", words=["w", "2"])  # K is 3 by one and 2 by the other
        bad("--size", "K=4", "--size", "V=4", "--input", "x=x.npy", words=["x", "3"])
        bad(*sizes, "--const", "ignore=abc", words=["--const ignore", "'abc'", "a number"])
        bad(*sizes, "--const", "ignore=nan", words=["ignore", "nan"])
        bad(*sizes, "--const", "other=1", words=["--const other"])
        bad(*sizes, "--dtype", "i32", words=["--dtype", "i32", "bf16"])
        bad(*sizes, "--backend", "gpu", words=["--backend", "gpu", "interpreter"])
        bad(*sizes, "--threads", "-1", words=["threads", "-1"])
        bad(*sizes, "--seed", "abc", words=["--seed", "abc"])
        bad(*sizes, "--save", "none", words=["--save", "'none'", "Create it"])
        bad(*sizes, "--json", "none/x.json", words=["--json", "none/x.json", "does not exist"])
        bad(*sizes, "--json", ".", words=["--json", "a directory"])
        os.mkfifo(self.dir / "pipe")  # replacing it by a file would break whoever reads it
        bad(*sizes, "--json", "pipe", words=["--json", "a device or pipe"])
        self.assertTrue((self.dir / "pipe").is_fifo())
        for backend in ["cpu", "interpreter"]:
            for targets, word in [((1, 4), "4"), ((-1, 0), "-1")]:
                npy(self.dir / "t.npy", targets, "<i4", (2, 1))
                bad(*sizes, "--input", "t=t.npy", "--const", "ignore=-100", "--backend", backend, words=["t", word])
            for number in [0.5, float("nan"), 1e10]:
                npy(self.dir / "t.npy", [0, number], "<f8", (2, 1))
                bad(*sizes, "--input", "t=t.npy", "--backend", backend, words=["--input t", "whole numbers"])
        npy(self.dir / "w.npy", [1.0] * 15, shape=(5, 3))  # pairs of five columns
        self.refused("run", PROGRAMS / "swiglu_pairs.coda", "--input", "x=x.npy", "--input", "w=w.npy",
                     words=["w", "5", "2*F"])
        rotation = ["--size", "M=2", "--size", "K=3", "--size", "S=5", "--size", "H=2", "--size", "G=1"]
        for backend in ["cpu", "interpreter"]:
            self.refused("run", PROGRAMS / "rope_pairs.coda", *rotation, "--size", "hd=3", "--backend", backend,
                         words=["size hd/2", "3/2"])

    def test_ignored_target_is_no_mistake(self):
        npy(self.dir / "t.npy", [-100, 1], "<i8", (2,))
        self.coda("run", PROGRAMS / "rmsnorm_cross_entropy.coda", "--size", "M=2", "--size", "K=3", "--size", "V=4",
                  "--input", "t=t.npy", "--json", "o.json")
        loss = json.loads((self.dir / "o.json").read_text())["outputs"]["loss"]["values"]
        self.assertEqual(loss[0], 0)
        self.assertNotEqual(loss[1], 0)


class Explain(Case):
    def test_layer(self):
        args = ["--tokens", 64, "--dim", 64, "--ff", 96, "--heads", 4, "--kv-heads", 2]
        shown = self.coda("explain", *args, "--json", "e.json").stdout
        plans = json.loads((self.dir / "e.json").read_text())
        self.assertEqual(list(plans), ["backward", "forward"])
        for name, gemms in {"forward": 4, "backward": 8}.items():
            plan = plans[name]
            self.assertEqual(plan["gemms"], gemms)
            for key in ["passes", "finishes", "bytes", "flops", "seconds", "kept_bytes", "temp_bytes"]:
                self.assertIsInstance(plan[key], (int, float), key)
                self.assertGreaterEqual(plan[key], 0)
            self.assertGreater(plan["bytes"], 0)
            self.assertEqual(sum(s["gemms"] for s in plan["steps"]), gemms)
            self.assertEqual(sum(s["bytes"] for s in plan["steps"]), plan["bytes"])
            self.assertGreater(plan["unfused"]["bytes"], plan["bytes"])
            self.assertEqual(plan["unfused"]["flops"], plan["flops"])
            self.assertEqual(plan["machine"]["name"], "h200")
            self.assertIn(f"{gemms} GEMMs", shown)
            for step in plan["steps"]:
                self.assertIn(step["name"], shown)
        other = self.coda("explain", *args, "--machine", "cpu", "--dtype", "f32", "--json", "f.json").stdout
        self.assertNotEqual(other, shown)
        self.assertGreater(json.loads((self.dir / "f.json").read_text())["forward"]["bytes"], plans["forward"]["bytes"])

    def test_mistakes(self):
        program = PROGRAMS / "swiglu.coda"
        self.refused("explain", program, words=["coda: size F: no value", "--size F="])
        self.refused("explain", program, "--size", "Q=1", words=["--size Q"])
        self.refused("explain", program, "--program", "other", words=["--program", "'other'", "swiglu"])
        self.refused("explain", "none.coda", words=["none.coda"])
        self.refused("explain", "--machine", "abacus", words=["machine", "'abacus'", "h200"])
        self.refused("explain", "--heads", "7", words=["heads", "7"])
        self.refused("explain", "--heads", "8", "--kv-heads", "3", words=["kv_heads", "3"])
        self.refused("explain", "--tokens", "0", words=["--tokens", "0"])
        self.refused("explain", "--dtype", "i32", words=["--dtype", "i32"])
        self.refused("explain", "--json", "none/e.json", words=["--json"])


class Check(Case):
    def test_list_filter_and_json(self):
        names = self.coda("check", "--list").stdout.splitlines()
        self.assertGreater(len(names), 1000)
        self.assertEqual(len(names), len(set(names)))
        for program in PROGRAMS.glob("*.coda"):
            self.assertTrue(any(program.stem in n for n in names), program.stem)
        chosen = self.coda("check", "--list", "--filter", "rmsnorm_argmax").stdout.splitlines()
        self.assertEqual(chosen, [n for n in names if "rmsnorm_argmax" in n])
        one = chosen[0]
        ran = self.coda("check", "--filter", one, "--skip-large", "--json", "c.json").stdout
        report = json.loads((self.dir / "c.json").read_text())
        matching = len([n for n in names if one in n])
        self.assertEqual(report["passed"] + report["skipped"], matching)
        self.assertGreater(report["passed"], 0)
        self.assertEqual((report["failed"], report["failures"]), (0, []))
        self.assertIn(f"{report['passed']} passed, 0 failed, {report['skipped']} skipped", ran)

    def test_mistakes(self):
        self.refused("check", "--filter", "no such case", words=["filter", "'no such case'", "--list"])
        self.refused("check", "--backend", "gpu", words=["--backend", "gpu", "cpu"])
        self.refused("check", "--json", "none/c.json", words=["--json"])


class Bench(Case):
    def test_json(self):
        args = ["bench", "--n", "128", "--rounds", "1", "--dtype", "f32", "--threads", "1", "--filter", "P2"]
        done = subprocess.run([CODA, *args, "--json", "b.json"], cwd=self.dir, capture_output=True, text=True,
                              timeout=120)
        if done.returncode == 2 and "no library GEMM" in done.stderr:
            self.skipTest("no GEMM library on this machine")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads((self.dir / "b.json").read_text())
        self.assertEqual(sorted(report), ["command", "commit", "machine", "rows"])
        self.assertEqual(report["command"], "coda " + " ".join(args) + " --json b.json")
        self.assertTrue(report["machine"] and report["commit"])
        self.assertTrue(report["rows"])
        for row in report["rows"]:
            self.assertEqual(sorted(row), ["backend", "baseline", "baseline_s", "dtype", "median_s", "name", "q1_s",
                                           "q3_s", "ratio", "shape", "threads"])
            self.assertEqual((row["backend"], row["dtype"], row["threads"]), ("cpu", "f32", 1))
            self.assertLessEqual(row["q1_s"], row["median_s"])
            self.assertLessEqual(row["median_s"], row["q3_s"])
            self.assertAlmostEqual(row["ratio"], row["median_s"] / row["baseline_s"], delta=1e-6 * row["ratio"])
            self.assertIn("128", row["shape"])
        self.assertEqual(os.listdir(self.dir), ["b.json"])

    def test_mistakes(self):
        self.refused("bench", "--n", "3", words=["--n", "128"])
        self.refused("bench", "--dtype", "f64", words=["--dtype", "f64"])
        self.refused("bench", "--rounds", "0", words=["--rounds"])
        self.refused("bench", "--json", "none/b.json", words=["--json"])


class Train(Case):
    def train(self, out, *args, code=0):
        return self.coda("train", "--text", "text.txt", "--out", out, *TINY, *args, code=code)

    def test_a_run(self):
        self.text()
        done = self.train("run", "--steps", 30, "--lr", "1e-2", "--json", "r.json", "--eval-every", 10)
        report = json.loads((self.dir / "r.json").read_text())
        self.assertEqual((report["steps"], report["interrupted"]), (30, False))
        self.assertLess(report["validation_loss"], 4)
        self.assertGreater(report["tokens_per_second"], 0)
        self.assertIn(f"validation loss {report['validation_loss']:.4f} nats", done.stdout)
        for key in ["checkpoint", "curve"]:
            self.assertIn(report[key], done.stdout)
            self.assertTrue((self.dir / report[key]).is_file())
        curve = (self.dir / report["curve"]).read_text()
        self.assertIn("<svg", curve)
        self.assertIn("nats per byte", curve)
        self.assertIn("step 30: validation loss", done.stderr)
        self.assertIn("tok/s", done.stderr)
        self.assertEqual(sorted(os.listdir(self.dir / "run")), ["checkpoint.safetensors", "loss.svg"])
        size = struct.unpack("<Q", (self.dir / report["checkpoint"]).read_bytes()[:8])[0]
        header = json.loads((self.dir / report["checkpoint"]).read_bytes()[8:8 + size])
        self.assertEqual(header["layer0.wk"]["shape"], [16, 32])

    def test_token_ids(self):
        ids = [i * i % 50 for i in range(3000)]
        (self.dir / "ids.bin").write_bytes(struct.pack("<3000H", *ids))
        args = ["train", "--out", "run", *TINY, "--steps", 2]
        self.coda(*args, "--bin", "ids.bin")
        self.assertIn("nats per token", (self.dir / "run" / "loss.svg").read_text())
        shutil.rmtree(self.dir / "run")
        self.refused(*args, "--bin", "ids.bin", "--vocab", "20", words=["ids.bin", "49", "below 20"])
        (self.dir / "odd.bin").write_bytes(b"abc" * 1001)
        self.refused(*args, "--bin", "odd.bin", words=["odd.bin", "3003 bytes"])
        self.text("ids.txt")
        self.refused(*args, "--bin", "ids.txt", words=["--bin", "'ids.txt'", ".bin"])
        self.refused(*args, "--bin", "ids.bin", "--text", "ids.txt", words=["--bin", "--text"])

    def test_interrupt_and_resume(self):
        self.text()
        args = ["--steps", 400, "--eval-every", 20, "--save-every", 150, "--dtype", "bf16"]
        self.train("whole", *args, "--json", "whole.json")
        command = [CODA, "train", "--text", "text.txt", "--out", "the river's run", *TINY, *map(str, args)]
        process = subprocess.Popen([*command, "--json", "part.json"], cwd=self.dir, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        with process:
            for line in process.stderr:
                if "step 20:" in line:
                    process.send_signal(signal.SIGINT)
                    break
            shown = process.stdout.read()
            process.stderr.read()
        self.assertEqual(process.returncode, 130)
        part = json.loads((self.dir / "part.json").read_text())
        self.assertTrue(part["interrupted"])
        self.assertTrue(20 <= part["steps"] < 400, part)
        self.assertIn(f"stopped after step {part['steps']} of 400", shown)
        self.assertTrue((self.dir / part["checkpoint"]).is_file())
        command = re.search(r"resume with: coda (.*)", shown)
        self.assertIsNotNone(command, shown)
        resumed = subprocess.run(f"'{CODA}' {command[1]} --threads 1 --json rest.json", shell=True, cwd=self.dir,
                                 capture_output=True, text=True, timeout=300)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        whole, rest = (json.loads((self.dir / f).read_text()) for f in ["whole.json", "rest.json"])
        for key in ["steps", "interrupted", "train_loss", "validation_loss"]:
            self.assertEqual(whole[key], rest[key], key)
        for name in ["checkpoint.safetensors", "loss.svg"]:
            self.assertEqual((self.dir / "whole" / name).read_bytes(),
                             (self.dir / "the river's run" / name).read_bytes())

    def test_resume_is_the_same_run(self):
        self.text()
        self.train("run", "--steps", 3)
        before = (self.dir / "run" / "checkpoint.safetensors").read_bytes()
        for option, value in [("--dim", 64), ("--heads", 4), ("--layers", 2), ("--lr", 0.5), ("--seed", 9),
                              ("--seq", 8), ("--dtype", "bf16"), ("--batch", 1), ("--ff", 8), ("--warmup", 1),
                              ("--clip", 0)]:
            self.refused("train", "--resume", "--out", "run", option, value,
                         words=[option, str(value), "started with"])
        self.refused("train", "--resume", "--out", "run", "--tied", words=["--tied"])
        self.refused("train", "--resume", "--out", "run", "--steps", 2, words=["steps", "2", "at least the 3"])
        self.refused("train", "--resume", "--out", "none", words=["--resume", "none/checkpoint.safetensors"])
        self.refused("train", "--text", "text.txt", "--out", "run", *TINY, words=["out", "'run'", "--resume"])
        # Going on for longer, with options repeated or left out.
        self.coda("train", "--resume", "--out", "run", "--steps", 5, "--dim", 32, "--save-every", 1)
        self.assertNotEqual((self.dir / "run" / "checkpoint.safetensors").read_bytes(), before)
        for size in [len(before) - 1, len(before) // 2, 100, 8, 0]:
            (self.dir / "run" / "checkpoint.safetensors").write_bytes(before[:size])
            self.refused("train", "--resume", "--out", "run", words=["checkpoint.safetensors"])

    def test_mistakes(self):
        self.text()
        (self.dir / "empty.txt").write_bytes(b"")
        (self.dir / "binary.txt").write_bytes(b"text\0more" * 500)
        (self.dir / "short.txt").write_bytes(b"too short")
        (self.dir / "file").write_bytes(b"x")

        def bad(*args, words, text="text.txt", out="run"):
            self.refused("train", "--text", text, "--out", out, *TINY, *args, words=words)

        self.refused("train", words=["--text", "--bin"])
        bad(text="none.txt", words=["none.txt", "No such file", "Check the path"])
        bad(text="empty.txt", words=["empty.txt", "an empty file"])
        bad(text="binary.txt", words=["binary.txt", "NUL", "--allow-binary"])
        bad(text="short.txt", words=["short.txt", "9 tokens", "longer file"])
        bad(text=".", words=[".: a directory"])
        for out in ["file", "file/run", "/proc/none/run", "x" * 5000]:
            bad(out=out, words=["out", f"'{out}'"])
        for option, value, words in [
                ("--lr", "nan", ["learning rate", "nan", "Try"]), ("--lr", "0", ["learning rate"]),
                ("--lr", "-1", ["learning rate", "-1"]), ("--lr", "inf", ["learning rate"]),
                ("--lr", "abc", ["--lr", "abc"]),
                ("--layers", "0", ["layers", "0", "at least 1"]), ("--layers", "-3", ["layers", "-3"]),
                ("--steps", "0", ["steps", "0", "at least 1"]), ("--batch", "0", ["batch", "0"]),
                ("--heads", "0", ["--heads", "0"]), ("--heads", "5", ["--heads", "5", "--dim 32"]),
                ("--heads", "32", ["head_dim", "1"]), ("--kv-heads", "3", ["kv_heads", "3"]),
                ("--kv-heads", "-1", ["kv_heads", "-1"]), ("--dim", "0", ["dim", "0"]),
                ("--dim", "-32", ["dim", "-32"]),
                ("--dim", "9000000000000000000", ["dim", "at most"]), ("--ff", "-1", ["ff", "-1"]),
                ("--seq", "0", ["sequence", "0"]), ("--seq", "100000", ["tokens", "shorter sequence"]),
                ("--warmup", "-1", ["warm-up", "-1"]), ("--weight-decay", "-1", ["weight decay", "-1"]),
                ("--clip", "nan", ["clip", "nan"]), ("--dtype", "f64", ["--dtype", "f64", "bf16"]),
                ("--eval-every", "0", ["eval-every", "0"]), ("--eval-batches", "0", ["eval-batches", "0"]),
                ("--save-every", "0", ["save-every", "0"]), ("--threads", "-1", ["threads", "-1"]),
                ("--vocab", "20", ["vocab", "20", "at least 256"]),
                ("--json", "none/r.json", ["--json", "none/r.json"])]:
            args = list(TINY)
            if option in args:
                at = args.index(option)
                del args[at:at + 2]
            self.refused("train", "--text", "text.txt", "--out", "run", *args, option, value, words=words)
        self.coda("train", "--text", "binary.txt", "--allow-binary", "--out", "run", *TINY, "--steps", 1)


if __name__ == "__main__":
    CODA, PROGRAMS = os.path.abspath(sys.argv[1]), Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
