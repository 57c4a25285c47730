# cmake -DPROGRAMS="a.coda;b.coda" -DOUTPUT=embedded.cc -P embed_programs.cmake: the files as string literals, so that
# the library needs no file at run time. Run by the build when a program changes.
set(entries "")
foreach(file IN LISTS PROGRAMS)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(FIND "${text}" ")coda\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${file} contains )coda\", the end of its literal")
  endif()
  string(APPEND entries "    {\"${name}\", R\"coda(${text})coda\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Generated from programs/*.coda by embed_programs.cmake.
#include \"plan/embedded.h\"

namespace coda {
namespace {

constexpr EmbeddedProgram kPrograms[] = {
${entries}};

}  // namespace

std::size_t embedded_program_count() { return sizeof(kPrograms) / sizeof(kPrograms[0]); }
EmbeddedProgram embedded_program(std::size_t i) { return kPrograms[i]; }

}  // namespace coda
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
