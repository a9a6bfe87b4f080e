#include "recipes/nested_pages.h"

#include <arrow/buffer.h>
#include <arrow/io/file.h>
#include <parquet/column_page.h>
#include <parquet/column_writer.h>
#include <parquet/encoding.h>
#include <parquet/exception.h>
#include <parquet/file_writer.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstring>

#include "encoders/level_encoder.h"

namespace torchparquet::testing {
namespace {

using parquet::Encoding;

struct SplitPage {
  std::vector<uint8_t> levels;
  std::shared_ptr<arrow::Buffer> values;
  int32_t num_entries;
};

void AppendLevels(Draws& draws, const std::vector<int16_t>& levels, int max_level,
                  bool bit_packed, std::vector<uint8_t>* out) {
  if (max_level == 0) return;
  const std::vector<uint8_t> narrow(levels.begin(), levels.end());
  std::vector<uint8_t> bytes = bit_packed
                                   ? PackHighestFirst(narrow, LevelWidth(max_level))
                                   : EncodeLevels(draws, narrow, max_level);
  for (int i = 0; i < 4 && !bit_packed; ++i) {
    out->push_back(static_cast<uint8_t>(bytes.size() >> (8 * i)));
  }
  out->insert(out->end(), bytes.begin(), bytes.end());
}

std::shared_ptr<arrow::Buffer> BodyOf(const SplitPage& page) {
  std::shared_ptr<arrow::ResizableBuffer> body;
  PARQUET_ASSIGN_OR_THROW(body, arrow::AllocateResizableBuffer(std::ssize(page.levels) +
                                                               page.values->size()));
  std::copy(page.levels.begin(), page.levels.end(), body->mutable_data());
  std::copy_n(page.values->data(), page.values->size(),
              body->mutable_data() + page.levels.size());
  return body;
}

void WritePages(parquet::PageWriter* writer, const std::vector<SplitPage>& pages,
                Encoding::type encoding, bool bit_packed) {
  const auto levels = bit_packed ? Encoding::BIT_PACKED : Encoding::RLE;
  for (const SplitPage& page : pages) {
    std::shared_ptr<arrow::Buffer> body = BodyOf(page);
    const int64_t num_bytes = body->size();
    if (writer->has_compressor()) {
      std::shared_ptr<arrow::ResizableBuffer> compressed;
      PARQUET_ASSIGN_OR_THROW(compressed, arrow::AllocateResizableBuffer(0));
      writer->Compress(*body, compressed.get());
      body = compressed;
    }
    writer->WriteDataPage(
        parquet::DataPageV1(body, page.num_entries, encoding, levels, levels, num_bytes));
  }
}

template <typename ParquetType, typename ToValue>
void WriteChunk(parquet::PageWriter* writer, const Shredded& shredded,
                const parquet::ColumnDescriptor& descriptor, const NestedRecipe& recipe,
                Encoding::type encoding, const ToValue& to_value) {
  Draws draws(static_cast<uint64_t>(std::ssize(shredded.definition)));
  const bool has_dictionary = encoding == Encoding::RLE_DICTIONARY;
  const auto encoder = parquet::MakeTypedEncoder<ParquetType>(
      has_dictionary ? Encoding::PLAIN : encoding, has_dictionary, &descriptor);
  std::vector<SplitPage> pages;
  auto value = shredded.values.begin();
  for (int64_t begin = 0; begin < std::ssize(shredded.definition);) {
    // Now and then a page of nothing.
    const int64_t end = std::min(
        std::ssize(shredded.definition),
        begin + (draws.OneIn(20) ? 0 : draws.Between(1, 2 * recipe.page_entries)));
    const std::vector<int16_t> repetition(shredded.repetition.begin() + begin,
                                          shredded.repetition.begin() + end);
    const std::vector<int16_t> definition(shredded.definition.begin() + begin,
                                          shredded.definition.begin() + end);
    SplitPage& page = pages.emplace_back();
    page.num_entries = static_cast<int32_t>(end - begin);
    AppendLevels(draws, repetition, descriptor.max_repetition_level(),
                 recipe.bit_packed_levels, &page.levels);
    AppendLevels(draws, definition, descriptor.max_definition_level(),
                 recipe.bit_packed_levels, &page.levels);
    for (const int16_t level : definition) {
      if (level < descriptor.max_definition_level()) continue;
      const typename ParquetType::c_type stored = to_value(**value++);
      encoder->Put(&stored, 1);
    }
    page.values = encoder->FlushValues();
    begin = end;
  }
  if (has_dictionary) {
    auto& dictionary = dynamic_cast<parquet::DictEncoder<ParquetType>&>(*encoder);
    std::shared_ptr<arrow::Buffer> bytes;
    PARQUET_ASSIGN_OR_THROW(bytes, arrow::AllocateBuffer(dictionary.dict_encoded_size()));
    dictionary.WriteDict(bytes->mutable_data());
    writer->WriteDictionaryPage(
        parquet::DictionaryPage(bytes, dictionary.num_entries(), Encoding::PLAIN));
  }
  WritePages(writer, pages, encoding, recipe.bit_packed_levels);
  writer->Close(has_dictionary, /*fallback=*/false);
}

template <typename Value>
Value Load(const std::string& bytes) {
  Value value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

void WriteChunkOf(parquet::PageWriter* writer, const Shredded& shredded,
                  const parquet::ColumnDescriptor& descriptor, const NestedRecipe& recipe,
                  Encoding::type encoding) {
  const auto write = [&]<typename ParquetType>(ParquetType, const auto& to_value) {
    WriteChunk<ParquetType>(writer, shredded, descriptor, recipe, encoding, to_value);
  };
  const auto data = [](const std::string& bytes) {
    return reinterpret_cast<const uint8_t*>(bytes.data());  // characters are bytes
  };
  switch (descriptor.physical_type()) {
    case parquet::Type::BOOLEAN:
      return write(parquet::BooleanType(), Load<bool>);
    case parquet::Type::INT32:
      return write(parquet::Int32Type(), Load<int32_t>);
    case parquet::Type::INT64:
      return write(parquet::Int64Type(), Load<int64_t>);
    case parquet::Type::BYTE_ARRAY:
      return write(parquet::ByteArrayType(), [&](const std::string& bytes) {
        return parquet::ByteArray(static_cast<uint32_t>(bytes.size()), data(bytes));
      });
    default:
      return write(parquet::FLBAType(), [&](const std::string& bytes) {
        return parquet::FixedLenByteArray(data(bytes));
      });
  }
}

}  // namespace

void WriteSplitPages(const std::string& path, const NestedRecipe& recipe,
                     const parquet::SchemaDescriptor& schema,
                     const std::shared_ptr<parquet::WriterProperties>& properties,
                     const ShreddedFile& row_groups) {
  PARQUET_ASSIGN_OR_THROW(const auto sink, arrow::io::FileOutputStream::Open(path));
  PARQUET_THROW_NOT_OK(sink->Write("PAR1", 4));
  const auto file = parquet::FileMetaDataBuilder::Make(&schema, properties);
  for (size_t group = 0; group < row_groups.size(); ++group) {
    parquet::RowGroupMetaDataBuilder* row_group = file->AppendRowGroup();
    row_group->set_num_rows(recipe.row_group_rows[group]);
    for (size_t i = 0; i < recipe.columns.size(); ++i) {
      const parquet::ColumnDescriptor& descriptor = *schema.Column(static_cast<int>(i));
      const auto encoding = recipe.columns[i].stored_as == StoredAs::kDictionary
                                ? Encoding::RLE_DICTIONARY
                                : properties->encoding(descriptor.path());
      const auto writer = parquet::PageWriter::Open(
          sink, properties->compression(descriptor.path()), row_group->NextColumnChunk(),
          -1, -1, arrow::default_memory_pool(), false, nullptr, nullptr,
          recipe.has_checksums);
      WriteChunkOf(writer.get(), row_groups[group][i], descriptor, recipe, encoding);
    }
    PARQUET_ASSIGN_OR_THROW(const int64_t num_bytes, sink->Tell());
    row_group->Finish(num_bytes);
  }
  parquet::WriteFileMetaData(*file->Finish(), sink.get());
  PARQUET_THROW_NOT_OK(sink->Close());
}

}  // namespace torchparquet::testing
