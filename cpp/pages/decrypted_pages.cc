#include "pages/decrypted_pages.h"

#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/types.h>

#include <algorithm>

namespace torchparquet {
namespace {

PageHeader HeaderOf(const parquet::Page& page) {
  PageHeader header;
  header.compressed_bytes = header.uncompressed_bytes = page.size();
  header.is_compressed = false;
  switch (page.type()) {
    case parquet::PageType::DATA_PAGE: {
      const auto& data = static_cast<const parquet::DataPageV1&>(page);
      header.kind = PageHeader::Kind::kData;
      header.num_values = data.num_values();
      header.encoding = data.encoding();
      header.definition_level_encoding = data.definition_level_encoding();
      header.repetition_level_encoding = data.repetition_level_encoding();
      break;
    }
    case parquet::PageType::DATA_PAGE_V2: {
      const auto& data = static_cast<const parquet::DataPageV2&>(page);
      header.kind = PageHeader::Kind::kDataV2;
      header.num_values = data.num_values();
      header.encoding = data.encoding();
      header.definition_level_bytes = data.definition_levels_byte_length();
      header.repetition_level_bytes = data.repetition_levels_byte_length();
      break;
    }
    case parquet::PageType::DICTIONARY_PAGE: {
      const auto& dictionary = static_cast<const parquet::DictionaryPage&>(page);
      header.kind = PageHeader::Kind::kDictionary;
      header.num_values = dictionary.num_values();
      header.encoding = dictionary.encoding();
      break;
    }
    default:
      break;
  }
  return header;
}

}  // namespace

DecryptedPages::DecryptedPages(const ParquetFile& file, int64_t row_group, int column)
    : file_(file),
      row_group_(row_group),
      column_(column),
      reader_(file.OpenPages(row_group, column)) {}

DecryptedPages::~DecryptedPages() = default;

std::optional<PageHeader> DecryptedPages::Next() {
  page_ = reader_->NextPage();
  if (page_ == nullptr) return std::nullopt;
  ++num_read_;
  largest_bytes_ = std::max<int64_t>(largest_bytes_, page_->size());
  return HeaderOf(*page_);
}

std::span<const uint8_t> DecryptedPages::body() const {
  return {page_->data(), static_cast<size_t>(page_->size())};
}

void DecryptedPages::Seek(int64_t number) {
  if (number < num_read_) {
    reader_ = file_.OpenPages(row_group_, column_);
    num_read_ = 0;
    largest_bytes_ = 0;
  }
  // Decodes and drops the page: if a page is skipped unread, Arrow counts wrongly and
  // cannot decrypt the pages that follow.
  while (num_read_ < number && Next()) {
  }
  page_.reset();
}

}  // namespace torchparquet
