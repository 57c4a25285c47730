// Expectations that several tests share.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "coda/error.h"

// f() throws an Error about `argument` whose finding contains `found`.
template <class F>
void check_error(const std::string& argument, const std::string& found, F&& f) {
  try {
    f();
    FAIL_CHECK("no error about " << argument << ": " << found);
  } catch (const coda::Error& e) {
    INFO(std::string(e.what()));
    CHECK(e.parts().argument == argument);
    CHECK(e.parts().found.find(found) != std::string::npos);
  }
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
