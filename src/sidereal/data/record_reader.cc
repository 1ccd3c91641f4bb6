#include "sidereal/data/record_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "sidereal/base/bytes.h"
#include "sidereal/parse/crc32c.h"

namespace sidereal::data {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
/// A length may lie: memory for a record is taken in pieces, as its bytes come.
constexpr size_t kPieceBytes = size_t{16} << 20;
constexpr size_t kHeadBytes = 12;
constexpr size_t kTailBytes = 4;

uint32_t masked_crc(std::string_view bytes) { return parse::masked_crc(parse::crc32c(bytes)); }

}  // namespace

std::string record_of(std::string_view bytes) {
  base::ByteWriter out;
  out.put(static_cast<uint64_t>(bytes.size()));
  out.put(masked_crc(out.bytes()));
  out.put_bytes(bytes);
  out.put(masked_crc(bytes));
  return out.take();
}

Result<std::unique_ptr<RecordReader>> RecordReader::open(const std::string& path,
                                                         const std::atomic<bool>* stop) {
  SR_ASSIGN_OR_RETURN(auto source, open_bytes(path, stop));
  return std::make_unique<RecordReader>(path, std::move(source));
}

RecordReader::RecordReader(std::string path, std::unique_ptr<ByteSource> source)
    : path_(std::move(path)), source_(std::move(source)) {}

Result<size_t> RecordReader::read(std::span<char> out) {
  size_t done = 0;
  while (done < out.size()) {
    if (begin_ == buffer_.size()) {
      buffer_.resize(kReadBytes);
      begin_ = 0;
      SR_ASSIGN_OR_RETURN(const size_t got, source_->read(std::span<char>(buffer_)));
      buffer_.resize(got);
      if (got == 0) break;
    }
    const size_t count = std::min(out.size() - done, buffer_.size() - begin_);
    std::memcpy(out.data() + done, buffer_.data() + begin_, count);
    begin_ += count;
    done += count;
  }
  at_ += done;
  return done;
}

Status RecordReader::ends_early() const {
  return base::data_loss("{}, byte {}: the file ends in the middle of a record", path_, at_);
}

Result<bool> RecordReader::next(std::string* record) {
  const uint64_t begin = at_;
  std::array<char, kHeadBytes> head{};
  SR_ASSIGN_OR_RETURN(size_t got, read(head));
  if (got == 0) return false;
  if (got < head.size()) return ends_early();
  uint64_t length = 0;
  uint32_t crc = 0;
  base::ByteReader fields({head.data(), head.size()});
  SR_RETURN_IF_ERROR(fields.get(&length));
  SR_RETURN_IF_ERROR(fields.get(&crc));
  if (crc != masked_crc({head.data(), sizeof(length)})) {
    return base::data_loss("{}, byte {}: the checksum of a length is wrong", path_, begin);
  }
  record->clear();
  while (record->size() < length) {
    const size_t from = record->size();
    const size_t piece = std::min<uint64_t>(length - from, kPieceBytes);
    record->resize(from + piece);
    SR_ASSIGN_OR_RETURN(got, read(std::span<char>(*record).subspan(from)));
    if (got < piece) return ends_early();
  }
  std::array<char, kTailBytes> tail{};
  SR_ASSIGN_OR_RETURN(got, read(tail));
  if (got < tail.size()) return ends_early();
  std::memcpy(&crc, tail.data(), sizeof(crc));
  if (crc != masked_crc(*record)) {
    return base::data_loss("{}, byte {}: the checksum of a record is wrong", path_,
                           begin + kHeadBytes);
  }
  return true;
}

}  // namespace sidereal::data
