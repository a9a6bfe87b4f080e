#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torchparquet::testing {

// How a column's values are stored. kFallback is delta for integers, byte stream split
// for floats, and runs for booleans: what Arrow's decoders read for us.
enum class StoredAs { kPlain, kDictionary, kFallback };

// A column whose content is a pure function of its name and the row.
struct StoredColumn {
  std::string name;
  std::string kind;  // one of those of LeafColumn::kind
  StoredAs stored_as = StoredAs::kPlain;
  int64_t null_every =
      0;  // each so-manieth row is null; 0: required, -1: optional without nulls
};

// Bytes of an item of the output type.
int64_t ItemBytes(const std::string& kind);
uint64_t LoadItem(const uint8_t* data, int64_t item_bytes);

// The cells of a column, by global row. Tests compare each of them, so that all that the
// column's names decide is decided once.
class Cells {
 public:
  explicit Cells(const StoredColumn& column);

  bool IsNull(int64_t row) const {
    return null_every_ > 0 && row % null_every_ == null_every_ - 1;
  }
  // The output's bit pattern, whether the cell is null or not.
  uint64_t Bits(int64_t row) const;
  // True if the item at `data` is the cell, or the low bytes of `fill_bits` if that is
  // null.
  bool Equals(int64_t row, uint64_t fill_bits, const uint8_t* data) const;

 private:
  uint64_t seed_;
  uint64_t mask_;  // of the bits that a pattern may have
  int64_t item_bytes_;
  int64_t null_every_;
  bool are_repeated_;
  bool are_dates_;
};

struct FileRecipe {
  std::vector<StoredColumn> columns;
  std::vector<int64_t> row_group_rows;
  int64_t page_rows = 100;
  bool second_version = false;  // of data pages
  bool compressed = true;
  bool has_checksums = true;
  // A column chunk whose dictionary grows beyond this goes on with plain pages.
  int64_t max_dictionary_bytes = 1 << 20;
  bool has_arrow_schema = false;  // among the metadata, as Arrow's own writer stores it
};

// Writes the rows from `first_row` on.
void WriteParquet(const std::string& path, const FileRecipe& recipe, int64_t first_row);

}  // namespace torchparquet::testing
