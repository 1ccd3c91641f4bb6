#include "sidereal/ckpt/tensor_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "sidereal/ckpt/table_file.h"
#include "sidereal/ckpt/tensor_bundle.pb.h"
#include "sidereal/ckpt/testing/folder.h"

namespace sidereal::ckpt {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TableFile, GivesBackWhatWasAdded) {
  std::map<std::string, std::string> all{{"", "header"}, {std::string("\0x", 2), "nul"}};
  for (int i = 0; i < 5000; ++i) {
    all[fmt::format("layer_{}/kernel", i)] = std::string(static_cast<size_t>(i % 90), 'v');
  }
  TableBuilder builder;
  for (const auto& [key, value] : all) builder.add(key, value);
  const std::string bytes = std::move(builder).finish();
  std::map<std::string, std::string> got;
  const Status read = read_table(bytes, [&](std::string_view key, std::string_view value) {
    got.emplace(key, value);
    return Status();
  });
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_EQ(got, all);
  TableBuilder none;
  EXPECT_TRUE(read_table(std::move(none).finish(), [](std::string_view, std::string_view) {
                return base::internal("there is nothing");
              }).ok());
}

TEST(TableFile, NoChangedByteIsTaken) {
  TableBuilder builder;
  for (int i = 10; i < 40; ++i) builder.add(fmt::format("key {}", i), "value");
  const std::string bytes = std::move(builder).finish();
  const auto ignore = [](std::string_view, std::string_view) { return Status(); };
  for (size_t i = 0; i < bytes.size() - kTableFooterBytes; ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    EXPECT_EQ(read_table(changed, ignore).code(), StatusCode::kDataLoss) << i;
  }
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(read_table(std::string_view(bytes).substr(0, n), ignore).code(),
              StatusCode::kDataLoss);
  }
}

TEST(TensorBundle, KeysOfSlicesAreThoseOfTensorFlow) {
  // EncodeTensorNameSlice("w", [0,4) of 8 rows, all of 100 columns).
  EXPECT_EQ(bundle_slice_key("w", {{0, 4}, {0, 100}}, Shape{8, 100}),
            std::string("\x00w\x00\x01\x01\x02\x80\x84\x80\x7f", 10));
  // Numbers from 64 on take two bytes, the first with two bits of length.
  EXPECT_EQ(bundle_slice_key("w", {{64, 300}}, Shape{1000}),
            std::string("\x00w\x00\x01\x01\x01\xc0\x40\xc1\x2c", 10));
  EXPECT_EQ(bundle_slice_key(std::string("a\0\xff", 3), {}, Shape{}),
            std::string("\x00"
                        "a\x00\xff\xff\x00\x00\x01\x00",
                        9));
}

TEST(TensorBundle, ReadsWhatItWrote) {
  const Folder folder;
  const std::string prefix = folder.path("model.ckpt-7");
  const Tensor table = numbers(DType::kFloat32, Shape{1000, 7});
  const Tensor names = Tensor::strings(Shape{2, 2}, std::vector<std::string>{"a", "", "ccc", "d"});
  const Tensor step = Tensor::scalar<int64_t>(7);
  {
    auto made = create_tensor_bundle(prefix);
    ASSERT_TRUE(made.ok()) << made.status();
    TensorWriter& writer = **made;
    const Slice low{{0, 600}, {0, 7}};
    const Slice high{{600, 400}, {0, 7}};
    const StoredTensor sliced{"table", DType::kFloat32, Shape{1000, 7}, {low, high}};
    ASSERT_TRUE(writer.add(sliced, low, table.rows(0, 1)).ok());
    ASSERT_TRUE(writer.add(sliced, low, table.rows(1, 599)).ok());
    ASSERT_TRUE(writer.add(sliced, high, table.rows(600, 400)).ok());
    const StoredTensor texts{"names", DType::kString, Shape{2, 2}};
    const Slice all = whole_slice(Shape{2, 2});
    ASSERT_TRUE(writer.add(texts, all, names.rows(0, 1)).ok());
    ASSERT_TRUE(writer.add(texts, all, names.rows(1, 1)).ok());
    ASSERT_TRUE(writer.add({"step", DType::kInt64, Shape{}}, {}, step).ok());
    ASSERT_TRUE(writer
                    .add({"none", DType::kBool, Shape{0, 3}}, whole_slice(Shape{0, 3}),
                         Tensor::empty(DType::kBool, Shape{0, 3}))
                    .ok());
    EXPECT_FALSE(is_tensor_bundle(prefix));
    ASSERT_TRUE(writer.finish().ok());
  }
  EXPECT_TRUE(is_tensor_bundle(prefix));
  EXPECT_THAT(folder.names(),
              ElementsAre("model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"));
  auto opened = open_tensor_bundle(prefix);
  ASSERT_TRUE(opened.ok()) << opened.status();
  TensorReader& reader = **opened;
  ASSERT_EQ(reader.list().size(), 4);
  EXPECT_EQ(reader.list()[0].name, "names");
  EXPECT_EQ(reader.find("table")->slices.size(), 2);
  const auto whole = reader.read("table");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(bytes_of(*whole), bytes_of(table));
  const auto part = reader.read("table", {{598, 4, 2}, {3, 2}});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_THAT(part->data<float>(), ElementsAre(4189, 4190, 4203, 4204, 4217, 4218, 4231, 4232));
  EXPECT_THAT(reader.read("names")->data<const std::string_view>(),
              ElementsAre("a", "", "ccc", "d"));
  EXPECT_THAT(reader.read("names", {{1, 1}, {0, 2}})->data<const std::string_view>(),
              ElementsAre("ccc", "d"));
  EXPECT_THAT(reader.read("step")->data<int64_t>(), ElementsAre(7));
  EXPECT_EQ(reader.read("none")->to_string(), "bool[0,3]");
  for (const StoredTensor& stored : reader.list()) EXPECT_TRUE(reader.verify(stored.name).ok());
  EXPECT_EQ(reader.read("tables").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(reader.read("table", {{0, 1}}).status().code(), StatusCode::kInvalidArgument);
}

TEST(TensorBundle, KeepsEveryDType) {
  const Folder folder;
  std::vector<Tensor> tensors;
  for (int number = 1; is_valid(static_cast<DType>(number)); ++number) {
    const auto dtype = static_cast<DType>(number);
    if (dtype != DType::kString) tensors.push_back(numbers(dtype, Shape{3, 5}));
  }
  ASSERT_EQ(tensors.size(), 13);
  const std::string prefix = folder.path("all");
  auto writer = create_tensor_bundle(prefix);
  for (const Tensor& t : tensors) {
    const StoredTensor stored{std::string(name_of(t.dtype())), t.dtype(), t.shape()};
    ASSERT_TRUE((*writer)->add(stored, whole_slice(t.shape()), t).ok());
  }
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = open_tensor_bundle(prefix);
  for (const Tensor& t : tensors) {
    const auto got = (*reader)->read(name_of(t.dtype()));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->to_string(), t.to_string());
    EXPECT_EQ(bytes_of(*got), bytes_of(t));
  }
}

/// A bundle of one float32[100] called "x", and of three strings called "s".
void write_small(const std::string& prefix) {
  auto writer = create_tensor_bundle(prefix);
  const Tensor x = numbers(DType::kFloat32, Shape{100});
  const Tensor s = Tensor::strings(Shape{3}, std::vector<std::string>{"one", "two", "three"});
  ASSERT_TRUE((*writer)->add({"s", DType::kString, s.shape()}, whole_slice(s.shape()), s).ok());
  ASSERT_TRUE((*writer)->add({"x", DType::kFloat32, x.shape()}, whole_slice(x.shape()), x).ok());
  ASSERT_TRUE((*writer)->finish().ok());
}

TEST(TensorBundle, FindsEveryChangedByteOfItsData) {
  const Folder folder;
  const std::string prefix = folder.path("x");
  write_small(prefix);
  const std::string path = prefix + ".data-00000-of-00001";
  const std::string bytes = folder.contents("x.data-00000-of-00001");
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    folder.write("x.data-00000-of-00001", changed);
    auto reader = open_tensor_bundle(prefix);
    ASSERT_TRUE(reader.ok());
    const char* name = i < bytes.size() - 400 ? "s" : "x";
    const Status status = (*reader)->read(name).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << i;
    EXPECT_THAT(base::message_of(status), HasSubstr(path));
    EXPECT_EQ((*reader)->verify(name).code(), StatusCode::kDataLoss) << i;
  }
}

TEST(TensorBundle, SaysWhatIsMissingOrCutOff) {
  const Folder folder;
  const std::string prefix = folder.path("x");
  EXPECT_EQ(open_tensor_bundle(prefix).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(create_tensor_bundle(folder.path("none/x")).status().code(), StatusCode::kNotFound);
  write_small(prefix);
  const std::string path = prefix + ".data-00000-of-00001";
  std::filesystem::resize_file(path, 300);
  auto reader = open_tensor_bundle(prefix);
  const Status cut = (*reader)->read("x").status();
  EXPECT_EQ(cut.code(), StatusCode::kDataLoss);
  EXPECT_THAT(base::message_of(cut), HasSubstr("300 bytes"));
  EXPECT_TRUE((*reader)->read("x", {{10, 5}}).ok() == false);
  std::filesystem::remove(path);
  reader = open_tensor_bundle(prefix);
  const Status missing = (*reader)->verify("x");
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(missing), HasSubstr("missing"));
}

TEST(TensorBundle, AWriterThatIsNotFinishedLeavesNothing) {
  const Folder folder;
  {
    auto writer = create_tensor_bundle(folder.path("x"));
    const Tensor x = numbers(DType::kFloat32, Shape{1 << 20});
    ASSERT_TRUE((*writer)->add({"x", DType::kFloat32, x.shape()}, whole_slice(x.shape()), x).ok());
  }
  EXPECT_THAT(folder.names(), ElementsAre());
}

/// The index with one tensor whose entries were changed, beside data of 4000 bytes.
Status opened_with(const Folder& folder, const bundle::Header& header,
                   const std::map<std::string, bundle::Entry>& entries) {
  TableBuilder table;
  table.add("", header.SerializeAsString());
  for (const auto& [key, entry] : entries) table.add(key, entry.SerializeAsString());
  folder.write("x.index", std::move(table).finish());
  folder.write("x.data-00000-of-00001", std::string(4000, '\0'));
  auto reader = open_tensor_bundle(folder.path("x"));
  if (!reader.ok()) return reader.status();
  for (const StoredTensor& stored : (*reader)->list()) {
    SR_RETURN_IF_ERROR((*reader)->read(stored.name).status());
  }
  return {};
}

TEST(TensorBundle, AnIndexThatLiesIsRefused) {
  const Folder folder;
  bundle::Header header;
  header.set_num_shards(1);
  bundle::Entry good;
  good.set_dtype(1);
  good.mutable_shape()->add_dim()->set_size(10);
  good.set_size(40);
  good.set_crc32c(0x9A3AAB31);
  const auto code_with = [&](auto change) {
    bundle::Entry entry = good;
    change(&entry);
    return opened_with(folder, header, {{"x", entry}}).code();
  };
  const auto loss = StatusCode::kDataLoss;
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->set_crc32c(1); }), loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->set_size(44); }), loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->set_offset(-4); }), loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->set_offset(3990); }), loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->set_shard_id(1); }), loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->mutable_shape()->mutable_dim(0)->set_size(-1); }),
            loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->mutable_shape()->set_unknown_rank(true); }), loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) {
              e->mutable_shape()->mutable_dim(0)->set_size(int64_t{1} << 50);
              e->set_size(int64_t{1} << 52);
            }),
            loss);
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->add_slices()->add_extent(); }), loss);
  // complex64, which can be listed.
  EXPECT_EQ(code_with([](bundle::Entry* e) { e->set_dtype(8); }), StatusCode::kInvalidArgument);
  header.set_endianness(1);
  EXPECT_EQ(opened_with(folder, header, {}).code(), StatusCode::kUnimplemented);
  header.set_endianness(0);
  header.mutable_version()->set_min_consumer(2);
  EXPECT_EQ(opened_with(folder, header, {}).code(), StatusCode::kUnimplemented);
  header.clear_version();
  header.set_num_shards(0);
  EXPECT_EQ(opened_with(folder, header, {}).code(), loss);
  header.set_num_shards(1);

  // Slices that overlap, and slices with a hole between them.
  for (const int64_t second : {4, 6}) {
    std::map<std::string, bundle::Entry> entries{{"x", good}};
    for (const Range range : {Range{0, 5}, Range{second, 4}}) {
      auto* extent = entries["x"].add_slices()->add_extent();
      extent->set_start(range.start);
      extent->set_length(range.count);
      bundle::Entry& part = entries[bundle_slice_key("x", {range}, Shape{10})];
      part.set_dtype(1);
      part.set_size(range.count * 4);
    }
    EXPECT_EQ(opened_with(folder, header, entries).code(), loss);
  }
}

}  // namespace
}  // namespace sidereal::ckpt
