#include "sidereal/data/testing/files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sidereal::data {

TestFolder::TestFolder() {
  folder_ = testing::TempDir() + "/sidereal_data_XXXXXX";
  EXPECT_NE(mkdtemp(folder_.data()), nullptr);
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string TestFolder::path(const std::string& name) const { return folder_ + "/" + name; }

std::string TestFolder::write(const std::string& name, std::string_view bytes) const {
  std::ofstream out(path(name), std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path(name);
}

std::string TestFolder::write_gzip(const std::string& name, std::string_view bytes) const {
  return write(name, gzip(bytes));
}

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string npy(const std::string& descr, const std::string& shape, std::string_view data,
                const std::string& fortran_order) {
  std::string header = fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descr,
                                   fortran_order, shape);
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string out = "\x93NUMPY";
  out += '\x01';
  out += '\x00';
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  return out + header + std::string(data);
}

std::vector<std::string> rows_of(const Batch& batch) {
  std::vector<std::string> rows;
  for (int64_t r = 0; r < batch.rows; ++r) {
    std::string text = fmt::format("{}", batch.label.data<float>()[r]);
    const auto append = [&](const tensor::Tensor& t, auto zero) {
      text += '|';
      if (!t.defined()) return;
      const int64_t width = t.shape().dim(1);
      const auto values = t.data<decltype(zero)>().subspan(r * width, width);
      for (int64_t i = 0; i < width; ++i) {
        const bool padded = batch.weights.defined() && batch.ids.data<int64_t>()[r * width + i] < 0;
        if (!padded) text += fmt::format("{}{}", i == 0 ? "" : ",", values[i]);
      }
    };
    append(batch.dense, 0.0F);
    append(batch.ids, int64_t{0});
    append(batch.weights, 0.0F);
    rows.push_back(text);
  }
  return rows;
}

Result<std::vector<std::string>> rows_of(const DataSpec& spec, const ReadOptions& options) {
  SR_ASSIGN_OR_RETURN(auto reader, Reader::open(spec, options));
  std::vector<std::string> rows;
  Batch batch;
  while (true) {
    SR_ASSIGN_OR_RETURN(const bool more, reader->next(&batch));
    if (!more) return rows;
    const std::vector<std::string> some = rows_of(batch);
    rows.insert(rows.end(), some.begin(), some.end());
  }
}

Result<std::vector<std::string>> rows_of(const DataSpec& spec) { return rows_of(spec, {}); }

std::string criteo_row(const std::string& label) {
  std::string row = label;
  for (int i = 1; i <= 13; ++i) row += fmt::format("\t{}", i);
  for (char c = 'a'; c <= 'z'; ++c) row += fmt::format("\t{}", c);
  return row;
}

}  // namespace sidereal::data
