#include "sidereal/data/shuffle_buffer.h"

#include <cstring>
#include <utility>

namespace sidereal::data {
namespace {

struct Header {
  float label;
  float sample_weight;
  uint32_t dense;
  uint32_t ids;
  uint32_t weights;
};

template <class T>
char* put(char* at, const T* values, size_t count) {
  if (count > 0) std::memcpy(at, values, count * sizeof(T));
  return at + count * sizeof(T);
}

template <class T>
const char* get(const char* at, std::vector<T>* values, size_t count) {
  values->resize(count);
  if (count > 0) std::memcpy(values->data(), at, count * sizeof(T));
  return at + count * sizeof(T);
}

}  // namespace

void ShuffleBuffer::pack(const Row& row) {
  const Header header{row.label, row.sample_weight, static_cast<uint32_t>(row.dense.size()),
                      static_cast<uint32_t>(row.ids.size()),
                      static_cast<uint32_t>(row.weights.size())};
  packed_.resize(sizeof(header) + row.dense.size() * sizeof(float) +
                 row.ids.size() * sizeof(int64_t) + row.weights.size() * sizeof(float));
  char* at = put(packed_.data(), &header, 1);
  at = put(at, row.ids.data(), row.ids.size());
  at = put(at, row.dense.data(), row.dense.size());
  put(at, row.weights.data(), row.weights.size());
}

void ShuffleBuffer::unpack(const std::string& bytes, Row* row) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  row->label = header.label;
  row->sample_weight = header.sample_weight;
  const char* at = bytes.data() + sizeof(header);
  at = get(at, &row->ids, header.ids);
  at = get(at, &row->dense, header.dense);
  get(at, &row->weights, header.weights);
}

void ShuffleBuffer::add(const Row& row) {
  pack(row);
  rows_.push_back(packed_);
}

void ShuffleBuffer::take(Row* row) {
  const size_t chosen = random_.below(rows_.size());
  unpack(rows_[chosen], row);
  std::swap(rows_[chosen], rows_.back());
  rows_.pop_back();
}

void ShuffleBuffer::swap(const Row& row, Row* out) {
  std::string& chosen = rows_[random_.below(rows_.size())];
  unpack(chosen, out);
  pack(row);
  chosen.assign(packed_);
}

}  // namespace sidereal::data
