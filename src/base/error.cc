#include "coda/error.h"

#include <fmt/format.h>

namespace coda {
namespace {

std::string join(const ErrorParts& p) {
  std::string text = p.argument;
  if (!p.found.empty()) text += (text.empty() ? "" : ": ") + p.found;
  if (!p.allowed.empty()) text += "; allowed: " + p.allowed;
  if (!p.way_out.empty()) text += ". " + p.way_out;
  return text;
}

}  // namespace

Error::Error(ErrorParts parts) : std::runtime_error(join(parts)), parts_(std::move(parts)) {}

InternalError::InternalError(const char* file, int line, const std::string& what)
    : std::logic_error(fmt::format("coda internal error at {}:{}: {}. This is a bug in coda; please report it.", file,
                                   line, what)) {}

}  // namespace coda
