#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ceil_divide.h"

namespace torchparquet::kernels {

// How documents are packed into sequences of one length.
struct Packing {
  enum class Strategy {
    // One document after the other. One goes on in the next sequence where it must.
    kConcat,
    // A document that does not fit into the rest of a sequence begins the next one.
    kSplit,
    // Documents of a window are placed where the least is left over.
    kBestFit,
  };

  int64_t length = 1;  // of a sequence, in tokens
  Strategy strategy = Strategy::kConcat;
  bool has_separator = false;    // documents that are not empty end with one more token
  int64_t window_documents = 1;  // of kBestFit
  // Padding follows each part of a document up to a multiple of so many tokens, which
  // `length` is a multiple of too.
  int64_t multiple_of = 1;

  // The tokens that a part of so many takes of a sequence.
  int64_t Padded(int64_t num_tokens) const {
    return CeilDivide(num_tokens, multiple_of) * multiple_of;
  }
};

// The part of a document that a sequence has.
struct PackedPart {
  int64_t begin = 0;       // its first value, counted over the values of all documents
  int64_t num_values = 0;  // without the separator
  bool has_separator = false;

  int64_t num_tokens() const { return num_values + has_separator; }
};

// Packs documents, given in order by their lengths, into sequences. Every token is in one
// sequence. The result depends on the lengths alone, not on how many are added at once.
// Empty documents leave no trace. One thread at a time.
//
// Source of kBestFit: "best fit decreasing", Johnson, "Near-optimal bin packing
// algorithms", 1973. Sequences stand in the order of their first documents.
class Packer {
 public:
  explicit Packer(const Packing& packing);

  // Adds documents. Lengths are at least 0.
  void Add(std::span<const int64_t> lengths);
  // Ends the last sequence, which may be shorter than others. No document comes after it.
  void Finish();

  // Sequences that are complete.
  int64_t num_sequences() const { return std::ssize(ends_); }
  // The parts of a complete sequence, in the order of their documents.
  std::span<const PackedPart> sequence(int64_t number) const;
  // Forgets the complete sequences.
  void Clear();
  // No later sequence has a value before this one.
  int64_t first_open_value() const;

 private:
  struct Document {
    int64_t begin = 0;  // its first value
    int64_t num_values = 0;
    int64_t num_tokens = 0;
  };

  // The tokens [begin, end) of a document.
  static PackedPart PartOf(const Document& document, int64_t begin, int64_t end);
  void Append(const Document& document);
  void AddToWindow(const Document& document);
  void PackWindow();
  void EndSequence();

  const Packing packing_;
  std::vector<PackedPart> parts_;
  std::vector<size_t> ends_;  // among the parts, of each complete sequence
  int64_t used_ = 0;          // tokens of the open sequence, padding included
  int64_t num_values_ = 0;    // of all documents until now
  std::vector<Document> window_;
  int64_t window_tokens_ = 0;
};

}  // namespace torchparquet::kernels
