#include "sidereal/service/tensor_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <grpcpp/grpcpp.h>

#include "sidereal/service/internal/tensor_group_message.h"
#include "sidereal/service/session.grpc.pb.h"

namespace sidereal::service {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;

std::vector<session::v1::TensorPiece> pieces_of(int32_t index, const Tensor& value) {
  PieceCutter cutter(index, value);
  std::vector<session::v1::TensorPiece> out;
  while (!cutter.done()) cutter.next(&out.emplace_back());
  return out;
}

TEST(TensorPieces, come_back_as_they_were) {
  std::vector<int32_t> many(700'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>(i * 7);
  const std::vector<Tensor> values = {
      Tensor::scalar(3.5F), Tensor::of(Shape{7, 100'000}, many),
      Tensor::empty(DType::kFloat64, Shape{3, 0}),
      Tensor::strings(Shape{3}, std::vector<std::string>{"a", "", std::string(3 << 20, 'x')})};
  PieceJoiner joiner(static_cast<int32_t>(values.size()));
  std::vector<Tensor> found(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto pieces = pieces_of(static_cast<int32_t>(i), values[i]);
    for (size_t k = 0; k < pieces.size(); ++k) {
      EXPECT_LE(pieces[k].data().size(), kPieceBytes);
      auto value = joiner.add(pieces[k]);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_EQ(value->has_value(), k + 1 == pieces.size());
      if (*value) found[(*value)->first] = (*value)->second;
    }
  }
  EXPECT_EQ(found[0].data<const float>()[0], 3.5F);
  EXPECT_EQ(found[1].shape(), (Shape{7, 100'000}));
  EXPECT_THAT(found[1].data<const int32_t>(), ::testing::ElementsAreArray(many));
  EXPECT_EQ(found[2].shape(), (Shape{3, 0}));
  EXPECT_EQ(found[3].data<const std::string_view>()[2], std::string(3 << 20, 'x'));
}

/// The messages of one tensor group.
std::vector<session::v1::TensorGroupPieces> messages_of(const ports::TensorGroup& tensor_group) {
  TensorGroupCutter cutter(7, tensor_group);
  std::vector<session::v1::TensorGroupPieces> out;
  while (!cutter.done()) {
    grpc::ByteBuffer bytes = cutter.next();
    EXPECT_TRUE(grpc::SerializationTraits<session::v1::TensorGroupPieces>::Deserialize(
                    &bytes, &out.emplace_back())
                    .ok());
  }
  return out;
}

TEST(TensorGroups, small_tensors_share_messages_and_large_ones_are_cut) {
  ports::TensorGroup tensor_group;
  for (int i = 0; i < 200; ++i) tensor_group.push_back(Tensor::scalar(static_cast<float>(i)));
  EXPECT_EQ(messages_of(tensor_group).size(), 1);
  tensor_group.push_back(Tensor::zeros(DType::kFloat32, Shape{600'000}));
  tensor_group.push_back(Tensor::strings(Shape{2}, std::vector<std::string>{"a", ""}));
  tensor_group.push_back(Tensor::empty(DType::kBool, Shape{0}));
  const auto messages = messages_of(tensor_group);
  EXPECT_EQ(messages.size(), 3);
  PieceJoiner joiner(static_cast<int32_t>(tensor_group.size()));
  size_t whole = 0;
  for (const session::v1::TensorGroupPieces& message : messages) {
    EXPECT_EQ(message.key(), 7);
    size_t bytes = 0;
    for (const session::v1::TensorPiece& piece : message.pieces()) {
      bytes += piece.data().size();
      const auto value = joiner.add(piece);
      ASSERT_TRUE(value.ok()) << value.status();
      if (!*value) continue;
      EXPECT_EQ((*value)->first, static_cast<int32_t>(whole++));
      EXPECT_EQ((*value)->second.to_string(),
                tensor_group[static_cast<size_t>((*value)->first)].to_string());
    }
    EXPECT_LE(bytes, kPieceBytes);
  }
  EXPECT_EQ(whole, tensor_group.size());
}

TEST(TensorGroups, a_message_has_a_bounded_number_of_pieces) {
  const ports::TensorGroup tensor_group(2 * kPiecesMax + 1, Tensor::empty(DType::kInt32, Shape{0}));
  const auto messages = messages_of(tensor_group);
  ASSERT_EQ(messages.size(), 3);
  EXPECT_EQ(messages[0].pieces_size(), kPiecesMax);
}

/// What a reader makes of `messages` of one tensor group of `count` tensors.
Result<ports::TensorGroup> read(std::vector<grpc::ByteBuffer> messages, size_t count) {
  ports::TensorGroup out(count);
  PieceJoiner joiner(static_cast<int32_t>(count));
  for (grpc::ByteBuffer& message : messages) {
    const auto status = read_tensor_group_message(
        &message,
        [&](int32_t key) -> Result<PieceJoiner*> {
          if (key == 7) return &joiner;
          return base::invalid_argument("tensor group {}", key);
        },
        [&](int32_t index, Tensor value) { out[static_cast<size_t>(index)] = std::move(value); });
    SR_RETURN_IF_ERROR(status.status());
  }
  return out;
}

/// `bytes` in slices of `size`.
grpc::ByteBuffer sliced(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) slices.emplace_back(bytes.substr(at, size));
  return {slices.data(), slices.size()};
}

std::string bytes_of(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(message.Dump(&slices).ok());
  std::string out;
  for (const grpc::Slice& slice : slices) {
    out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

TEST(TensorGroups, are_read_as_they_were_written) {
  std::vector<float> many(700'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  const ports::TensorGroup tensor_group = {
      Tensor::scalar(2.5F), Tensor::of(Shape{7, 100'000}, many), Tensor::empty(DType::kBool, {0}),
      Tensor::strings(Shape{2}, std::vector<std::string>{"a", std::string(9 << 10, 'b')})};
  TensorGroupCutter cutter(7, tensor_group);
  std::vector<grpc::ByteBuffer> messages;
  while (!cutter.done()) messages.push_back(cutter.next());
  for (const size_t size : {size_t{1} << 30, size_t{1000}, size_t{7}}) {
    std::vector<grpc::ByteBuffer> cut;
    for (const grpc::ByteBuffer& message : messages) cut.push_back(sliced(bytes_of(message), size));
    const auto found = read(cut, tensor_group.size());
    ASSERT_TRUE(found.ok()) << found.status();
    for (size_t i = 0; i < tensor_group.size(); ++i) {
      ASSERT_TRUE((*found)[i].defined()) << i;
      EXPECT_EQ((*found)[i].to_string(), tensor_group[i].to_string());
    }
    EXPECT_THAT((*found)[1].data<const float>(), ::testing::ElementsAreArray(many));
    EXPECT_EQ((*found)[3].data<const std::string_view>()[1], std::string(9 << 10, 'b'));
  }
}

TEST(TensorGroups, show_tensors_that_are_gone_otherwise) {
  grpc::ByteBuffer message;
  {
    ports::TensorGroup tensor_group = {Tensor::of(Shape{4096}, std::vector<int32_t>(4096, 5))};
    TensorGroupCutter cutter(7, std::move(tensor_group));
    message = cutter.next();
    EXPECT_TRUE(cutter.done());
  }
  const auto found = read({message}, 1);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)[0].data<const int32_t>()[4095], 5);
}

TEST(TensorGroups, of_any_bytes_are_refused_or_read) {
  const ports::TensorGroup tensor_group = {
      Tensor::scalar(2.5F), Tensor::strings(Shape{2}, std::vector<std::string>{"a", "bc"})};
  TensorGroupCutter cutter(7, tensor_group);
  const std::string bytes = bytes_of(cutter.next());
  for (size_t i = 0; i < bytes.size(); ++i) {
    static_cast<void>(read({sliced(bytes.substr(0, i), 5)}, 2));
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      static_cast<void>(read({sliced(changed, 5)}, 2));
    }
  }
  // A length above what has come takes no memory.
  EXPECT_FALSE(read({sliced("\x08\x07\x12\xff\xff\xff\xff\x03\x2a\xff\xff\xff\x7f", 3)}, 2).ok());
  EXPECT_FALSE(read({sliced("\x08\x06", 3)}, 2).ok());
}

struct Wrong {
  std::string what;
  std::function<void(session::v1::TensorPiece*)> change;
  std::string says;
};

TEST(TensorPieces, that_lie_are_refused) {
  const std::vector<Wrong> cases = {
      {"index", [](auto* p) { p->set_index(1); }, "tensor 1 of 1"},
      {"negative index", [](auto* p) { p->set_index(-1); }, "tensor -1"},
      {"dtype", [](auto* p) { p->set_dtype(99); }, "99 is not a dtype"},
      {"extent", [](auto* p) { p->set_dims(0, -2); }, "extent -2"},
      {"huge shape", [](auto* p) { p->set_dims(0, int64_t{1} << 60); }, ""},
      {"bytes", [](auto* p) { p->set_bytes(9); }, "has 9 bytes"},
      {"more data", [](auto* p) { p->set_data("123456789"); }, "1 bytes more"},
      {"huge",
       [](auto* p) {
         p->set_dims(0, int64_t{1} << 44);
         p->set_bytes(uint64_t{1} << 46);
       },
       "are allowed"},
  };
  for (const Wrong& one : cases) {
    PieceJoiner joiner(1);
    auto piece = pieces_of(0, Tensor::of(Shape{2}, std::vector<int32_t>{1, 2}))[0];
    one.change(&piece);
    const auto value = joiner.add(piece);
    ASSERT_FALSE(value.ok()) << one.what;
    EXPECT_THAT(base::message_of(value.status()), HasSubstr(one.says)) << one.what;
  }
}

TEST(TensorPieces, a_tensor_comes_once) {
  PieceJoiner joiner(1);
  const auto piece = pieces_of(0, Tensor::scalar(1.0F))[0];
  ASSERT_TRUE(joiner.add(piece).ok());
  EXPECT_FALSE(joiner.add(piece).ok());
}

TEST(TensorPieces, bools_are_zero_or_one) {
  PieceJoiner joiner(1);
  auto piece = pieces_of(0, Tensor::scalar(true))[0];
  piece.set_data("\2");
  EXPECT_FALSE(joiner.add(piece).ok());
}

TEST(TensorPieces, strings_that_do_not_fill_their_bytes_are_refused) {
  PieceJoiner joiner(1);
  auto piece = pieces_of(0, Tensor::strings(Shape{1}, std::vector<std::string>{"abc"}))[0];
  piece.mutable_data()->at(0) = 2;
  EXPECT_FALSE(joiner.add(piece).ok());
}

}  // namespace
}  // namespace sidereal::service
