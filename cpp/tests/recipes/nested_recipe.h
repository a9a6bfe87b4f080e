#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "columns/open_column.h"
#include "draws.h"
#include "recipes/parquet_recipe.h"

namespace torchparquet::testing {

// A row: a value, or a list of values, or of lists.
struct Nested {
  bool is_null = false;
  std::string bytes = {};  // of a value, as the tensor has them
  std::vector<Nested> items = {};
};

enum class ValueKind { kInt32, kInt64, kBool, kFixed, kString };

// How lists are stored: in a group of three levels, as writers do it now; in one of two,
// whose repeated field is the element; or, for one list, as a repeated field.
enum class ListForm { kThreeLevel, kTwoLevel, kBare };

struct NestedColumn {
  std::string name = {};
  ValueKind kind = ValueKind::kInt32;
  int num_lists = 1;
  ListForm form = ListForm::kThreeLevel;
  bool optional = true;                   // lists and values, where the form lets them be
  int64_t null_one_in = 6;                // 0: none is null
  int64_t list_length = -1;               // of every list of one level; -1: of any length
  StoredAs stored_as = StoredAs::kPlain;  // kFallback: some delta encoding

  bool is_string() const { return kind == ValueKind::kString; }
  int64_t item_bytes() const;
  int64_t cell_items() const;  // of a value that is no string
  // True if the lists at a depth are stored as optional; the last depth is the values'.
  bool IsOptional(int depth) const;
  // As it is delivered, rows of different lengths.
  ColumnRequest Request() const;
};

Nested RandomRow(Draws& draws, const NestedColumn& column, int depth = 0);

struct NestedRecipe {
  std::vector<NestedColumn> columns = {};
  std::vector<int64_t> row_group_rows = {};
  int64_t page_entries = 50;  // about
  bool second_version = false;
  bool compressed = true;
  bool has_checksums = true;
  bool has_offset_index = true;  // unless rows are split
  int64_t max_dictionary_bytes = 1 << 20;
  // Pages of the first version that end also within rows, and how their levels are
  // stored.
  bool splits_rows = false;
  bool bit_packed_levels = false;
};

// By column, those of all row groups.
std::vector<std::vector<Nested>> RandomRows(Draws& draws, const NestedRecipe& recipe);

// A file for as long as it lives, and what it was made of.
class NestedFile {
 public:
  NestedFile(const NestedRecipe& recipe, Draws& draws)
      : NestedFile(recipe, RandomRows(draws, recipe)) {}
  NestedFile(NestedRecipe recipe, std::vector<std::vector<Nested>> rows);
  ~NestedFile();
  NestedFile(const NestedFile&) = delete;
  NestedFile& operator=(const NestedFile&) = delete;

  const std::string& path() const { return path_; }
  const NestedRecipe& recipe() const { return recipe_; }
  // Of all row groups.
  const std::vector<Nested>& rows(size_t column) const { return rows_[column]; }
  int64_t FirstRow(int64_t row_group) const;
  int64_t num_rows() const { return std::ssize(rows_.front()); }

 private:
  const NestedRecipe recipe_;
  const std::vector<std::vector<Nested>> rows_;  // by column
  std::filesystem::path directory_;
  std::string path_;
};

// Rows end to end, as a batch of them has to be.
struct Flat {
  std::vector<std::vector<int64_t>> offsets;
  std::vector<uint8_t> values;
  std::vector<uint8_t> item_valid;
  std::vector<uint8_t> row_valid;

  bool operator==(const Flat&) const = default;
};

// A null number is the low bytes of `fill_bits`.
Flat Flatten(const NestedColumn& column, std::vector<const Nested*> rows,
             uint64_t fill_bits);
// Of rows that follow each other.
Flat Flatten(const NestedColumn& column, std::span<const Nested> rows,
             uint64_t fill_bits);

}  // namespace torchparquet::testing
