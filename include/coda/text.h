// The text form of programs and graphs (docs/language.md): parser and printer, which round-trip.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coda/error.h"
#include "coda/graph.h"
#include "coda/program.h"

namespace coda {

// A mistake in a text: what() starts with "file:line:column:" and ends with the source line and a caret.
class SourceError : public Error {
 public:
  SourceError(ErrorParts parts, int line, int column) : Error(std::move(parts)), line_(line), column_(column) {}
  int line() const { return line_; }
  int column() const { return column_; }

 private:
  int line_, column_;
};

// Every program and graph of a text, in order. Programs are verified (Program's constructor) before they are returned.
std::vector<Graph> parse(std::string_view text, const std::string& file = "<text>");
std::vector<Graph> parse_file(const std::string& path);
// Exactly one; Error otherwise.
Program parse_program(std::string_view text, const std::string& file = "<text>");
Program load_program(const std::string& path);

std::string print(const Graph& g);  // parse(print(g)) has the same hash, and prints the same text

}  // namespace coda
