"""The Llama layer of `coda bench` (no attention) in PyTorch on the CPU, eager and compiled, beside coda in one run.

    python3 bench/torch_layer.py [--coda build/release/bin/coda] [--json FILE] [--threads 1 2] [--dtype f32 bf16]

Needs PyTorch (any CPU build). From attention's output y [tokens, d] and the residual stream x0 to the next layer's rotated
q, k, v: x1 = y Wo + x0; h = rmsnorm(x1); x2 = (silu(h Wg) * (h Wu)) W2 + x1; q, k, v = rmsnorm(x2) Wqkv, q and k rotated;
and the gradients of everything, weights included. Times are medians in seconds of rounds in which the two PyTorch
candidates take turns; coda's own process is timed before and after, the median of both kept.
"""
import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

TOKENS, D, FF, HEADS = 2048, 1024, 2816, 16


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        def weight(rows, cols):
            return torch.nn.Parameter(torch.randn(rows, cols) / cols**0.5)
        self.wo, self.wg, self.wu, self.w2 = weight(D, D), weight(FF, D), weight(FF, D), weight(D, FF)
        self.wq, self.wk, self.wv = weight(D, D), weight(D, D), weight(D, D)
        self.norm1, self.norm2 = torch.nn.Parameter(torch.ones(D)), torch.nn.Parameter(torch.ones(D))

    def forward(self, y, x0, cos, sin):
        def rotate(z):
            z = z.view(TOKENS, HEADS, -1)
            a, b = z.chunk(2, dim=-1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).view(TOKENS, D)
        x1 = F.linear(y, self.wo) + x0
        h = F.rms_norm(x1, (D,), self.norm2, 1e-5)
        x2 = F.linear(F.silu(F.linear(h, self.wg)) * F.linear(h, self.wu), self.w2) + x1
        h = F.rms_norm(x2, (D,), self.norm1, 1e-5)
        return x2, rotate(F.linear(h, self.wq)), rotate(F.linear(h, self.wk)), F.linear(h, self.wv)


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def torch_times(dtype, threads, rounds):
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    layer = Layer().to(dtype)
    y, x0 = (torch.randn(TOKENS, D).to(dtype).requires_grad_() for _ in range(2))
    half = D // HEADS // 2
    cos, sin = torch.rand(TOKENS, 1, half).to(dtype), torch.rand(TOKENS, 1, half).to(dtype)
    seeds = [torch.randn(TOKENS, D).to(dtype) for _ in range(4)]

    def step(f):
        torch.autograd.backward(f(y, x0, cos, sin), seeds)

    candidates = {"eager": layer, "compiled": torch.compile(layer)}
    times = {name: [] for name in candidates}
    for round_number in range(rounds + 2):
        for name, f in candidates.items():
            start = time.perf_counter()
            step(f)
            if round_number > 1:
                times[name].append(time.perf_counter() - start)
    return {name: median(t) for name, t in times.items()}


def coda_time(binary, dtype, threads, rounds):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([binary, "bench", "--filter", "layer forward+backward", "--dtype", dtype, "--threads", str(threads),
                        "--rounds", str(rounds), "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        record = json.load(open(out.name))
    return record, next(r["median_s"] for r in record["rows"] if r["name"] == "layer forward+backward")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--coda", default="build/release/bin/coda")
    parser.add_argument("--json")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtype", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rows, record = [], {}
    for dtype in args.dtype:
        for threads in args.threads:
            record, before = coda_time(args.coda, dtype, threads, args.rounds)
            theirs = torch_times({"f32": torch.float32, "bf16": torch.bfloat16}[dtype], threads, args.rounds)
            _, after = coda_time(args.coda, dtype, threads, args.rounds)
            ours = (before + after) / 2
            for name, seconds in theirs.items():
                rows.append({"name": "layer forward+backward", "backend": "cpu", "shape": f"{TOKENS} tokens, d {D}, ff {FF}, no attention",
                             "dtype": dtype, "threads": threads, "median_s": ours, "q1_s": min(before, after), "q3_s": max(before, after),
                             "baseline": f"PyTorch {torch.__version__} {name}", "baseline_s": seconds, "ratio": ours / seconds})
                print(f"{dtype} {threads}T  coda {ours * 1e3:.1f} ms ({before * 1e3:.1f}, {after * 1e3:.1f})  {name} {seconds * 1e3:.1f} ms  ratio {ours / seconds:.3f}", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"machine": record.get("machine", platform.processor()), "commit": record.get("commit"),
                       "command": "python3 " + " ".join(sys.argv), "rows": rows}, f, indent=2)


if __name__ == "__main__":
    main()
