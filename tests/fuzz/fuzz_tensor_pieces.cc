#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/service/internal/tensor_group_message.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/service/tensor_pieces.h"
#include "sidereal/tensor/strings.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_changes.h"
#include "tests/fuzz/mutator.h"

namespace {

namespace service = sidereal::service;
namespace tensor = sidereal::tensor;
using sidereal::session::v1::TensorPiece;

constexpr uint64_t kRoom = uint64_t{1} << 20;
constexpr int32_t kIndices = 4;

/// Messages, each behind two bytes of its length, the low one first.
std::vector<std::string> messages_of(std::string_view input) {
  std::vector<std::string> out;
  while (input.size() >= 2) {
    const size_t size =
        static_cast<uint8_t>(input[0]) + size_t{256} * static_cast<uint8_t>(input[1]);
    out.emplace_back(input.substr(2, size));
    input.remove_prefix(2 + out.back().size());
  }
  return out;
}

bool is_same(const tensor::Tensor& a, const tensor::Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() != tensor::DType::kString) {
    return std::equal(a.raw(), a.raw() + a.nbytes(), b.raw());
  }
  return tensor::strings_to_bytes(a) == tensor::strings_to_bytes(b);
}

/// A tensor that was put together comes out of its own pieces as it went in.
void check_again(int32_t index, const tensor::Tensor& value) {
  service::PieceJoiner joiner(kIndices);
  service::PieceCutter cutter(index, value);
  while (true) {
    TensorPiece piece;
    cutter.next(&piece);
    const auto got = joiner.add(piece);
    SR_CHECK(got.ok(), "{}", sidereal::base::message_of(got.status()));
    SR_CHECK(got->has_value() == cutter.done(), "a tensor is complete at another piece");
    if (!cutter.done()) continue;
    SR_CHECK((*got)->first == index && is_same((*got)->second, value), "another tensor");
    return;
  }
}

/// Bytes are a message of a tensor group, or are refused.
void check_message(std::string_view input) {
  const auto room = std::make_shared<service::ArrivingBytes>(kRoom);
  service::PieceJoiner joiner(kIndices, room);
  const grpc::Slice slice(input.data(), input.size());
  grpc::ByteBuffer message(&slice, 1);
  const auto read = service::read_tensor_group_message(
      &message, [&](int32_t) -> sidereal::Result<service::PieceJoiner*> { return &joiner; },
      [](int32_t index, const tensor::Tensor& value) { check_again(index, value); });
  SR_CHECK(!read.ok() || *read <= static_cast<int64_t>(input.size()), "more than there is");
}

}  // namespace

/// What messages announce is taken and given back, and what they make are tensors.
SR_FUZZ_TARGET(tensor_pieces) {
  const auto room = std::make_shared<service::ArrivingBytes>(kRoom);
  {
    service::PieceJoiner joiner(kIndices, room);
    for (const std::string& bytes : messages_of(input)) {
      TensorPiece piece;
      if (!piece.ParseFromString(bytes)) continue;
      const auto got = joiner.add(piece);
      SR_CHECK(room->taken() <= kRoom, "{} bytes are taken", room->taken());
      if (got.ok() && got->has_value()) check_again((*got)->first, (*got)->second);
    }
  }
  SR_CHECK(room->taken() == 0, "{} bytes did not come back", room->taken());
  check_message(input);
}

#ifdef SIDEREAL_FUZZ
SR_FUZZ_MUTATOR {
  std::minstd_rand random(seed);
  std::vector<std::string> messages = messages_of(input);
  if (messages.empty() || random() % 20 == 0) {
    return sidereal::fuzz::change_bytes(std::string(input), max);
  }
  std::string& message = messages[random() % messages.size()];
  switch (random() % 12) {
    case 0:
      message.swap(messages.back());
      messages.pop_back();
      break;
    case 1:
      messages.push_back(std::string(message));
      break;
    case 2:
      message.swap(messages[random() % messages.size()]);
      break;
    default:
      message = sidereal::fuzz::change_message(message, *TensorPiece::descriptor(), 0xffff, &random,
                                               sidereal::fuzz::change_bytes);
  }
  std::string out;
  for (const std::string& one : messages) {
    out += static_cast<char>(one.size() % 256);
    out += static_cast<char>(one.size() / 256);
    out += one;
  }
  return out;
}
#endif
