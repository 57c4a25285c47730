// The two kinds of failure. `Error` is the caller's mistake: it names the argument, what was found, what is allowed and
// the way out, and is raised before anything is launched or written. `InternalError` is ours: please report it.
#pragma once

#include <stdexcept>
#include <string>

namespace coda {

// Built from parts so that no message can forget one of them:
//   "<argument>: <found>; allowed: <allowed>. <way_out>"   (empty parts are left out)
struct ErrorParts {
  std::string argument;  // what the message is about: "target", "--steps", "programs/p1.coda:3:7"
  std::string found;     // what was given
  std::string allowed;   // what would have been right
  std::string way_out;   // what to do now, one sentence
};

class Error : public std::runtime_error {
 public:
  explicit Error(ErrorParts parts);
  const ErrorParts& parts() const { return parts_; }

 private:
  ErrorParts parts_;
};

// A broken invariant of coda itself.
class InternalError : public std::logic_error {
 public:
  InternalError(const char* file, int line, const std::string& what);
};

}  // namespace coda

// Always on: checks an invariant of ours; `message` is any expression convertible to std::string.
#define CODA_CHECK(condition, message)                                            \
  do {                                                                            \
    if (!(condition)) throw ::coda::InternalError(__FILE__, __LINE__, (message)); \
  } while (false)
