#include "kernels/packing/packer.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

// A window ends with the document that brings it to this size, so that the values of few
// long documents fit into memory.
constexpr int64_t kMaxWindowTokens = int64_t{1} << 22;

// A part of a document, and its place among those of the window.
struct Piece {
  size_t document = 0;
  PackedPart part;
};

}  // namespace

Packer::Packer(const Packing& packing) : packing_(packing) {
  if (packing.length < 1 || packing.window_documents < 1) {
    throw InvalidArgument("sequences and windows have a length of at least 1");
  }
  if (packing.multiple_of < 1 || packing.length % packing.multiple_of != 0) {
    throw InvalidArgument(
        "sequences have a multiple of the tokens that documents are padded to");
  }
}

void Packer::Add(std::span<const int64_t> lengths) {
  for (const int64_t length : lengths) {
    if (length == 0) continue;
    const Document document{.begin = num_values_,
                            .num_values = length,
                            .num_tokens = length + packing_.has_separator};
    num_values_ += length;
    if (packing_.strategy == Packing::Strategy::kBestFit) {
      AddToWindow(document);
    } else {
      Append(document);
    }
  }
}

void Packer::Finish() {
  PackWindow();
  if (used_ > 0) EndSequence();
}

std::span<const PackedPart> Packer::sequence(int64_t number) const {
  const auto at = static_cast<size_t>(number);
  const size_t begin = at == 0 ? 0 : ends_[at - 1];
  return {parts_.data() + begin, ends_[at] - begin};
}

void Packer::Clear() {
  const auto num_complete = static_cast<std::ptrdiff_t>(ends_.empty() ? 0 : ends_.back());
  parts_.erase(parts_.begin(), parts_.begin() + num_complete);
  ends_.clear();
}

int64_t Packer::first_open_value() const {
  if (!window_.empty()) return window_.front().begin;
  const size_t num_complete = ends_.empty() ? 0 : ends_.back();
  return num_complete < parts_.size() ? parts_[num_complete].begin : num_values_;
}

PackedPart Packer::PartOf(const Document& document, int64_t begin, int64_t end) {
  const int64_t values_end = std::min(end, document.num_values);
  return {.begin = document.begin + begin,
          .num_values = values_end - begin,
          .has_separator = end > document.num_values};
}

void Packer::EndSequence() {
  ends_.push_back(parts_.size());
  used_ = 0;
}

void Packer::Append(const Document& document) {
  const bool keeps_whole = packing_.strategy == Packing::Strategy::kSplit;
  if (keeps_whole && used_ > 0 && document.num_tokens > packing_.length - used_) {
    EndSequence();
  }
  for (int64_t begin = 0; begin < document.num_tokens;) {
    const int64_t count = std::min(packing_.length - used_, document.num_tokens - begin);
    parts_.push_back(PartOf(document, begin, begin + count));
    begin += count;
    used_ += packing_.Padded(count);
    if (used_ == packing_.length) EndSequence();
  }
}

void Packer::AddToWindow(const Document& document) {
  window_.push_back(document);
  window_tokens_ += document.num_tokens;
  if (std::ssize(window_) == packing_.window_documents ||
      window_tokens_ >= kMaxWindowTokens) {
    PackWindow();
  }
}

void Packer::PackWindow() {
  // Documents longer than a sequence fill some; what is left of them is placed like the
  // others.
  std::vector<std::vector<Piece>> sequences;
  std::vector<Piece> rests;
  for (size_t i = 0; i < window_.size(); ++i) {
    const Document& document = window_[i];
    int64_t begin = 0;
    for (; document.num_tokens - begin >= packing_.length; begin += packing_.length) {
      sequences.push_back({{i, PartOf(document, begin, begin + packing_.length)}});
    }
    if (begin < document.num_tokens) {
      rests.push_back({i, PartOf(document, begin, document.num_tokens)});
    }
  }
  // The longest first, and of equal ones the first document.
  std::ranges::sort(rests, {}, [](const Piece& piece) {
    return std::pair(-piece.part.num_tokens(), piece.document);
  });
  // The sequences that have room, by the room that they have.
  std::multimap<int64_t, size_t> with_room;
  for (const Piece& piece : rests) {
    int64_t room = packing_.length;
    size_t number = sequences.size();
    const int64_t num_padded = packing_.Padded(piece.part.num_tokens());
    if (const auto found = with_room.lower_bound(num_padded); found != with_room.end()) {
      std::tie(room, number) = *found;
      with_room.erase(found);
    } else {
      sequences.emplace_back();
    }
    sequences[number].push_back(piece);
    room -= num_padded;
    if (room > 0) with_room.emplace(room, number);
  }
  for (std::vector<Piece>& sequence : sequences) {
    std::ranges::sort(sequence, {}, &Piece::document);
  }
  const auto place_of = [](const std::vector<Piece>& sequence) {
    return std::pair(sequence.front().document, sequence.front().part.begin);
  };
  std::ranges::sort(sequences, {}, place_of);
  for (const std::vector<Piece>& sequence : sequences) {
    for (const Piece& piece : sequence) parts_.push_back(piece.part);
    EndSequence();
  }
  window_.clear();
  window_tokens_ = 0;
}

}  // namespace torchparquet::kernels
