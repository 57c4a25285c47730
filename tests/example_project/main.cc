// What a user of coda writes first: one program in C++, the same program as text, and its values on a small input.
// Run by the tests `example_project_install` and `example_project_subdirectory`; exit code 0 only if all agree.
#include <iostream>

#include "coda/builder.h"
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

bool evaluates_to_what_it_says(const coda::Program& program) {
  coda::Array x(2, 1, 3), w(2, 1, 3), r(2, 1, 1);
  x.data = {1, 2, 3, 4, 5, 6};
  w.data = {1, 0, -1, 2, 1, 0};
  r.data = {0.5, 2};
  coda::Array z = coda::interpret(program.graph(), {{"x", x}, {"w", w}, {"r", r}}).at("z");
  std::cout << "z = " << z.at(0, 0) << ' ' << z.at(0, 1) << " / " << z.at(1, 0) << ' ' << z.at(1, 1) << '\n';
  return z.at(0, 0) == -1 && z.at(0, 1) == 2 && z.at(1, 0) == -4 && z.at(1, 1) == 26;
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
    return evaluates_to_what_it_says(built) ? 0 : 1;
  } catch (const coda::Error& e) {
    std::cout << e.what() << '\n';
    return 1;
  }
}
