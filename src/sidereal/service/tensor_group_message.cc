#include "sidereal/service/internal/tensor_group_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sidereal/ir/schema.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::service {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using session::v1::TensorGroupPieces;
using session::v1::TensorPiece;
using tensor::DType;
using tensor::Tensor;

/// Fewer bytes are copied: a slice costs more.
constexpr size_t kCopied = 8 << 10;

void put_varint(uint64_t value, std::string* out) {
  std::array<uint8_t, 10> bytes{};
  const uint8_t* end = CodedOutputStream::WriteVarint64ToArray(value, bytes.data());
  out->append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(end - bytes.data()));
}

void put_tag(int field, WireFormatLite::WireType type, std::string* out) {
  put_varint(WireFormatLite::MakeTag(field, type), out);
}

void put_number(int field, uint64_t value, std::string* out) {
  put_tag(field, WireFormatLite::WIRETYPE_VARINT, out);
  put_varint(value, out);
}

/// The beginning of a field of `bytes` bytes.
void put_length(int field, uint64_t bytes, std::string* out) {
  put_tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, out);
  put_varint(bytes, out);
}

/// Bytes that `holder` keeps.
grpc::Slice slice_of(const char* data, size_t size, const std::shared_ptr<const void>& holder) {
  return {const_cast<char*>(data), size,
          [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); },
          new std::shared_ptr<const void>(holder)};
}

/// Reads one message; see read_tensor_group_message().
class Reader {
 public:
  using Take = absl::FunctionRef<void(int32_t, Tensor)>;

  Reader(CodedInputStream* in, Take take) : in_(in), take_(take) {}

  Status read(absl::FunctionRef<Result<PieceJoiner*>(int32_t key)> joiner_of) {
    while (const uint32_t tag = in_->ReadTag()) {
      if (WireFormatLite::GetTagFieldNumber(tag) == TensorGroupPieces::kKeyFieldNumber &&
          joiner_ == nullptr) {
        SR_RETURN_IF_ERROR(read_number(&key_));
      } else if (tag == WireFormatLite::MakeTag(TensorGroupPieces::kPiecesFieldNumber,
                                                WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
        if (joiner_ == nullptr) {
          SR_ASSIGN_OR_RETURN(joiner_, joiner_of(static_cast<int32_t>(key_)));
        }
        SR_RETURN_IF_ERROR(read_piece());
      } else if (!WireFormatLite::SkipField(in_, tag)) {
        return broken();
      }
    }
    if (!in_->ConsumedEntireMessage()) return broken();
    if (joiner_ != nullptr) return {};
    return joiner_of(static_cast<int32_t>(key_)).status();
  }

  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  static Status broken() { return base::data_loss("a message of tensors cannot be read"); }

  template <class T>
  Status read_number(T* out) {
    uint64_t value = 0;
    if (!in_->ReadVarint64(&value)) return broken();
    *out = static_cast<T>(value);
    return {};
  }

  /// The beginning of a field of bytes, all of which the message has.
  Status open_field(CodedInputStream::Limit* before) {
    uint32_t size = 0;
    if (!in_->ReadVarint32(&size)) return broken();
    if (static_cast<int64_t>(size) > in_->BytesUntilLimit()) return broken();
    *before = in_->PushLimit(static_cast<int>(size));
    return {};
  }

  Status read_piece() {
    PieceHead head;
    CodedInputStream::Limit before = 0;
    SR_RETURN_IF_ERROR(open_field(&before));
    bool has_data = false;
    while (const uint32_t tag = in_->ReadTag()) {
      if (has_data) return base::data_loss("a piece of a tensor goes on after its bytes");
      has_data = tag == WireFormatLite::MakeTag(TensorPiece::kDataFieldNumber,
                                                WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
      SR_RETURN_IF_ERROR(has_data ? read_data(head) : read_field(tag, &head));
    }
    if (!in_->ConsumedEntireMessage()) return broken();
    in_->PopLimit(before);
    if (!has_data) SR_RETURN_IF_ERROR(joiner_->room(head, 0).status());
    SR_ASSIGN_OR_RETURN(auto value, joiner_->filled());
    if (value) take_(value->first, std::move(value->second));
    return {};
  }

  Status read_field(uint32_t tag, PieceHead* head) {
    switch (WireFormatLite::GetTagFieldNumber(tag)) {
      case TensorPiece::kIndexFieldNumber:
        return read_number(&head->index);
      case TensorPiece::kDtypeFieldNumber:
        return read_number(&head->dtype);
      case TensorPiece::kBytesFieldNumber:
        return read_number(&head->bytes);
      case TensorPiece::kDimsFieldNumber:
        break;
      default:
        return WireFormatLite::SkipField(in_, tag) ? Status() : broken();
    }
    CodedInputStream::Limit before = 0;
    SR_RETURN_IF_ERROR(open_field(&before));
    while (in_->BytesUntilLimit() > 0) {
      if (head->dims.size() > static_cast<size_t>(ir::kMaxRank)) {
        return base::invalid_argument("a tensor of more than {} dimensions", ir::kMaxRank);
      }
      SR_RETURN_IF_ERROR(read_number(&head->dims.emplace_back()));
    }
    in_->PopLimit(before);
    return {};
  }

  Status read_data(const PieceHead& head) {
    CodedInputStream::Limit before = 0;
    SR_RETURN_IF_ERROR(open_field(&before));
    const int size = in_->BytesUntilLimit();
    SR_ASSIGN_OR_RETURN(std::byte* const to, joiner_->room(head, static_cast<size_t>(size)));
    if (!in_->ReadRaw(to, size)) return broken();
    in_->PopLimit(before);
    bytes_ += size;
    return {};
  }

  CodedInputStream* in_;
  Take take_;
  PieceJoiner* joiner_ = nullptr;
  int64_t key_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

void TensorGroupCutter::open() {
  const Tensor& value = values_[at_];
  if (value.dtype() == DType::kString) {
    auto bytes = std::make_shared<const std::string>(tensor::strings_to_bytes(value));
    source_ = Source{.holder = bytes, .data = bytes->data(), .bytes = bytes->size()};
  } else {
    auto held = std::make_shared<const Tensor>(value);
    source_ = Source{.holder = held,
                     .data = reinterpret_cast<const char*>(held->raw()),
                     .bytes = held->nbytes()};
  }
}

grpc::ByteBuffer TensorGroupCutter::next() {
  std::vector<grpc::Slice> slices;
  std::string text;
  put_number(TensorGroupPieces::kKeyFieldNumber, static_cast<uint64_t>(key_), &text);
  begun_ = true;
  bytes_ = 0;
  for (int pieces = 0; at_ < values_.size() && bytes_ < kPieceBytes && pieces < kPiecesMax;
       ++pieces) {
    const bool is_first = !source_;
    if (is_first) open();
    std::string head;
    put_number(TensorPiece::kIndexFieldNumber, at_, &head);
    if (is_first) {
      const Tensor& value = values_[at_];
      put_number(TensorPiece::kDtypeFieldNumber, static_cast<uint64_t>(value.dtype()), &head);
      std::string dims;
      for (const int64_t extent : value.shape().dims()) {
        put_varint(static_cast<uint64_t>(extent), &dims);
      }
      put_length(TensorPiece::kDimsFieldNumber, dims.size(), &head);
      head += dims;
      put_number(TensorPiece::kBytesFieldNumber, source_->bytes, &head);
    }
    const size_t size = std::min<uint64_t>(source_->bytes - source_->at, kPieceBytes - bytes_);
    put_length(TensorPiece::kDataFieldNumber, size, &head);
    put_length(TensorGroupPieces::kPiecesFieldNumber, head.size() + size, &text);
    text += head;
    const char* const from = source_->data + source_->at;
    if (size < kCopied) {
      text.append(from, size);
    } else {
      slices.emplace_back(text);
      text.clear();
      slices.push_back(slice_of(from, size, source_->holder));
    }
    bytes_ += size;
    source_->at += size;
    if (source_->at < source_->bytes) break;
    source_.reset();
    ++at_;
  }
  if (!text.empty()) slices.emplace_back(text);
  return {slices.data(), slices.size()};
}

Result<int64_t> read_tensor_group_message(
    grpc::ByteBuffer* message, absl::FunctionRef<Result<PieceJoiner*>(int32_t key)> joiner_of,
    absl::FunctionRef<void(int32_t index, Tensor value)> take) {
  grpc::ProtoBufferReader bytes(message);
  if (!bytes.status().ok()) return base::data_loss("a message of tensors cannot be read");
  CodedInputStream in(&bytes);
  // No length that a field says is above what has come.
  in.PushLimit(static_cast<int>(std::min<size_t>(message->Length(), size_t{1} << 30)));
  Reader reader(&in, take);
  SR_RETURN_IF_ERROR(reader.read(joiner_of));
  return reader.bytes();
}

}  // namespace sidereal::service
