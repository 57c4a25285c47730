// The texts that embed_programs.cmake generates from programs/*.coda. Called by program_library.cc only.
#pragma once

#include <cstddef>

namespace coda {

struct EmbeddedProgram {
  const char *name, *text;
};
std::size_t embedded_program_count();
EmbeddedProgram embedded_program(std::size_t i);

}  // namespace coda
