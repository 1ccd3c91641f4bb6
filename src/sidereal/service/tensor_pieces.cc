#include "sidereal/service/tensor_pieces.h"

#include <algorithm>
#include <utility>

#include "sidereal/ir/schema.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::service {

using base::invalid_argument;
using tensor::DType;
using tensor::Tensor;

PieceCutter::PieceCutter(int32_t index, Tensor value) : index_(index), value_(std::move(value)) {
  if (value_.dtype() == DType::kString) strings_ = tensor::strings_to_bytes(value_);
  bytes_ = value_.dtype() == DType::kString ? strings_.size() : value_.nbytes();
}

void PieceCutter::next(session::v1::TensorPiece* piece, size_t bytes_max) {
  piece->Clear();
  piece->set_index(index_);
  if (!begun_) {
    begun_ = true;
    piece->set_dtype(static_cast<int32_t>(value_.dtype()));
    for (const int64_t extent : value_.shape().dims()) piece->add_dims(extent);
    piece->set_bytes(bytes_);
  }
  const size_t size = std::min<uint64_t>(bytes_ - at_, bytes_max);
  const char* from =
      value_.dtype() == DType::kString ? strings_.data() : reinterpret_cast<char*>(value_.raw());
  if (size > 0) piece->set_data(from + at_, size);
  at_ += size;
  done_ = at_ == bytes_;
}

void cut_pieces(std::deque<PieceCutter>* tensors,
                google::protobuf::RepeatedPtrField<session::v1::TensorPiece>* out, size_t* bytes) {
  while (!tensors->empty() && *bytes < kPieceBytes && out->size() < kPiecesMax) {
    session::v1::TensorPiece* const piece = out->Add();
    tensors->front().next(piece, kPieceBytes - *bytes);
    *bytes += piece->data().size();
    if (tensors->front().done()) tensors->pop_front();
  }
}

Status PieceJoiner::begin(const PieceHead& head, Part* part) {
  part->dtype = static_cast<DType>(head.dtype);
  if (head.dtype < 0 || head.dtype > 255 || !tensor::is_valid(part->dtype)) {
    return invalid_argument("{} is not a dtype", head.dtype);
  }
  if (head.dims.size() > static_cast<size_t>(ir::kMaxRank))
    return invalid_argument("rank {}", head.dims.size());
  for (const int64_t extent : head.dims) {
    if (extent < 0) return invalid_argument("extent {}", extent);
    part->shape.append(extent);
  }
  SR_RETURN_IF_ERROR(ir::check_shape(part->shape));
  part->bytes = head.bytes;
  if (part->bytes > bytes_max_) {
    return base::resource_exhausted("{}{} has {} bytes; {} are allowed",
                                    tensor::name_of(part->dtype), part->shape.to_string(),
                                    part->bytes, bytes_max_);
  }
  if (arriving_ != nullptr) {
    if (!arriving_->take(part->bytes)) {
      return base::resource_exhausted(
          "no room for {}{} of {} bytes: all that arrives at a time may have {} bytes",
          tensor::name_of(part->dtype), part->shape.to_string(), part->bytes, arriving_->max());
    }
    taken_ += part->bytes;
  }
  if (part->dtype == DType::kString) return {};
  const auto elements = static_cast<uint64_t>(part->shape.num_elements());
  if (part->bytes != elements * tensor::size_of(part->dtype)) {
    return base::data_loss("{}{} has {} bytes", tensor::name_of(part->dtype),
                           part->shape.to_string(), part->bytes);
  }
  // Of new memory, pages that no byte comes for are never touched.
  tensor::Buffer::Ptr memory = memory_ != nullptr
                                   ? memory_->take(part->bytes)
                                   : tensor::Buffer::try_allocate_zeroed(part->bytes);
  if (memory == nullptr) {
    return base::resource_exhausted("there is no memory for {}{}", tensor::name_of(part->dtype),
                                    part->shape.to_string());
  }
  part->value = Tensor(part->dtype, part->shape, std::move(memory));
  return {};
}

Result<Tensor> PieceJoiner::finish(Part* part) {
  part->complete = true;
  if (part->dtype == DType::kString) {
    const std::string bytes = std::move(part->strings);
    return tensor::strings_from_bytes(bytes, part->shape);
  }
  if (part->dtype == DType::kBool) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(part->value.raw());
    if (std::any_of(bytes, bytes + part->bytes, [](unsigned char b) { return b > 1; })) {
      return base::data_loss("a bool is neither 0 nor 1");
    }
  }
  return std::move(part->value);
}

Result<std::optional<std::pair<int32_t, Tensor>>> PieceJoiner::add(
    const session::v1::TensorPiece& piece) {
  PieceHead head{.index = piece.index(), .dtype = piece.dtype(), .bytes = piece.bytes()};
  head.dims.assign(piece.dims().begin(), piece.dims().end());
  const std::string& data = piece.data();
  SR_ASSIGN_OR_RETURN(std::byte* const to, room(head, data.size()));
  if (!data.empty()) __builtin_memcpy(to, data.data(), data.size());
  return filled();
}

Result<std::byte*> PieceJoiner::room(const PieceHead& head, size_t size) {
  SR_RETURN_IF_ERROR(failure_);
  Result<std::byte*> out = make_room(head, size);
  failure_ = out.status();
  return out;
}

Result<std::byte*> PieceJoiner::make_room(const PieceHead& head, size_t size) {
  const int32_t index = head.index;
  if (index < 0 || index >= count_) {
    return invalid_argument("tensor {} of {}", index, count_);
  }
  const auto [found, is_first] = parts_.try_emplace(index);
  Part& part = found->second;
  if (part.complete) return invalid_argument("tensor {} came twice", index);
  if (is_first) {
    SR_RETURN_IF_ERROR(base::with_context(begin(head, &part), fmt::format("tensor {}", index)));
  }
  if (size > part.bytes - part.at) {
    return base::data_loss("tensor {} has {} bytes more than it should", index,
                           size - (part.bytes - part.at));
  }
  filling_ = index;
  size_ = size;
  if (part.dtype != DType::kString) return part.value.raw() + part.at;
  part.strings.resize(part.at + size);
  return reinterpret_cast<std::byte*>(part.strings.data() + part.at);
}

Result<std::optional<std::pair<int32_t, Tensor>>> PieceJoiner::filled() {
  SR_RETURN_IF_ERROR(failure_);
  const int32_t index = std::exchange(filling_, -1);
  const auto found = parts_.find(index);
  if (found == parts_.end()) return base::internal("no piece of a tensor was begun");
  Part& part = found->second;
  part.at += size_;
  if (part.at < part.bytes) return std::optional<std::pair<int32_t, Tensor>>();
  Result<Tensor> value = finish(&part);
  failure_ = value.status();
  SR_RETURN_IF_ERROR(failure_);
  return std::optional(std::pair(index, *std::move(value)));
}

}  // namespace sidereal::service
