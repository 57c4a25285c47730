// What a user of coda writes first: one program in C++, the same program as text, its values on a small input by the
// interpreter, and a run on the CPU backend. Run by the tests `example_project_install` and
// `example_project_subdirectory`; exit code 0 only if all agree.
#include <iostream>
#include <vector>

#include "coda/builder.h"
#include "coda/cpu.h"
#include "coda/interpret.h"
#include "coda/text.h"

namespace {

constexpr const char* kText = R"(
program rmsnorm_linear
in x: f32[M,K]
in w: f32[N,K]
in r: f32[M,1]
out z: f32[M,N] = (x @ w) * r
)";

coda::Program build() {
  coda::ProgramBuilder b("rmsnorm_linear");
  coda::Val x = b.input("x", coda::DType::kF32, {"M", "K"});
  coda::Val w = b.input("w", coda::DType::kF32, {"N", "K"});
  coda::Val r = b.input("r", coda::DType::kF32, {"M", 1});
  b.output("z", coda::DType::kF32, matmul(x, w) * r);
  return b.build();
}

const std::vector<double> kX = {1, 2, 3, 4, 5, 6}, kW = {1, 0, -1, 2, 1, 0}, kR = {0.5, 2}, kZ = {-1, 2, -4, 26};

bool interpreter_is_right(const coda::Program& program) {
  coda::Array x(2, 1, 3), w(2, 1, 3), r(2, 1, 1);
  x.data = kX;
  w.data = kW;
  r.data = kR;
  return coda::interpret(program.graph(), {{"x", x}, {"w", w}, {"r", r}}).at("z").data == kZ;
}

bool cpu_is_right(const coda::Program& program) {
  using coda::TensorView;
  std::vector<float> x(kX.begin(), kX.end()), w(kW.begin(), kW.end()), r(kR.begin(), kR.end()), z(4);
  coda::Plan plan = coda::single_program_plan(program, {});
  auto backend = coda::make_cpu_backend();
  auto executable = backend->prepare(plan, {{"M", 2}, {"N", 2}, {"K", 3}});
  executable->run({{"x", TensorView::matrix(x.data(), coda::DType::kF32, 2, 3)},
                   {"w", TensorView::matrix(w.data(), coda::DType::kF32, 2, 3)},
                   {"r", TensorView::matrix(r.data(), coda::DType::kF32, 2, 1)},
                   {"z", TensorView::matrix(z.data(), coda::DType::kF32, 2, 2)}});
  std::cout << executable->configuration() << '\n';
  return std::vector<double>(z.begin(), z.end()) == kZ;
}

}  // namespace

int main() {
  try {
    coda::Program built = build();
    coda::Program parsed = coda::parse_program(kText);
    std::cout << coda::print(built.graph());
    if (built.hash() != parsed.hash()) {
      std::cout << "the text and the C++ form differ\n";
      return 1;
    }
    if (!interpreter_is_right(built) || !cpu_is_right(built)) {
      std::cout << "wrong values\n";
      return 1;
    }
    std::cout << "the interpreter and the CPU backend agree\n";
    return 0;
  } catch (const coda::Error& e) {
    std::cout << e.what() << '\n';
    return 1;
  }
}
