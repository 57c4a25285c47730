// Tokens to train on, from a text file (its bytes) or a file of token ids, and the batches drawn from them. Called by
// the training loop. Invariant: a batch is a pure function of (file, seed, step), so that a resumed run needs no state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coda {

struct DataOptions {
  std::string path;             // a name that ends in .bin is token ids, all else text
  std::int64_t sequence = 256;  // tokens of a training sequence, ≥ 1
  std::int64_t vocab = 0;       // 0: 256 for text, the largest id + 1 for .bin. Text needs at least 256
  int id_bytes = 0;             // of a .bin: 2 or 4, little-endian, unsigned; 0: 4 if vocab > 65536, else 2
  bool allow_binary = false;    // text may contain NUL bytes
  double validation = 0.1;      // share at the end of the file that is never trained on, in (0, 1)
};

class TokenData {
 public:
  // Error for options out of range, a file that can't be read, is empty, too short for a sequence in each part, not a
  // whole number of ids, has an id ≥ vocab, or is text with NUL bytes.
  explicit TokenData(const DataOptions& options);

  std::int64_t vocab() const { return vocab_; }
  std::int64_t size() const { return size_; }
  std::int64_t train_size() const { return train_size_; }  // the first tokens; the rest is for validation
  std::int32_t token(std::int64_t i) const;

  // inputs, targets: [batch, sequence] row-major; targets are the tokens that follow. Sequences start anywhere in the
  // training part, uniformly.
  void train_batch(std::uint64_t seed, std::int64_t step, std::int64_t batch, std::int32_t* inputs,
                   std::int32_t* targets) const;

  // The validation part cut into whole sequences, and the batches numbered 0 … count − 1 spread evenly over it (some
  // sequences come twice if there are fewer than count · batch).
  std::int64_t validation_sequences() const;
  void validation_batch(std::int64_t index, std::int64_t count, std::int64_t batch, std::int32_t* inputs,
                        std::int32_t* targets) const;

 private:
  void check_tokens();
  void copy(std::int64_t start, std::int32_t* inputs, std::int32_t* targets) const;

  std::string path_;
  std::int64_t sequence_, vocab_ = 0, size_ = 0, train_size_ = 0;
  int width_ = 1;  // bytes of a token
  std::vector<char> bytes_;
};

}  // namespace coda
