#include "sidereal/ckpt/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ckpt/convert.h"
#include "sidereal/ckpt/npz.h"
#include "sidereal/ckpt/safetensors.h"
#include "sidereal/ckpt/tensor_bundle.h"
#include "sidereal/ckpt/testing/folder.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::ckpt {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A bundle with every dtype, a table in two slices, scalars and strings.
std::string write_bundle(const Folder& folder) {
  std::string prefix = folder.path("model.ckpt-3");
  auto made = create_tensor_bundle(prefix);
  EXPECT_TRUE(made.ok()) << made.status();
  TensorWriter& writer = **made;
  for (int number = 1; is_valid(static_cast<DType>(number)); ++number) {
    const auto dtype = static_cast<DType>(number);
    if (dtype == DType::kString) continue;
    const StoredTensor stored{fmt::format("of/{}", name_of(dtype)), dtype, Shape{3, 5}};
    EXPECT_TRUE(writer.add(stored, whole_slice(Shape{3, 5}), numbers(dtype, Shape{3, 5})).ok());
  }
  const Tensor table = numbers(DType::kFloat32, Shape{40, 3});
  const Slice low{{0, 10}, {0, 3}};
  const Slice high{{10, 30}, {0, 3}};
  const StoredTensor sliced{"table", DType::kFloat32, Shape{40, 3}, {low, high}};
  EXPECT_TRUE(writer.add(sliced, low, table.rows(0, 10)).ok());
  EXPECT_TRUE(writer.add(sliced, high, table.rows(10, 30)).ok());
  EXPECT_TRUE(writer.add({"step", DType::kInt64, Shape{}}, {}, Tensor::scalar<int64_t>(3)).ok());
  EXPECT_TRUE(writer
                  .add({"empty", DType::kFloat64, Shape{0, 2}}, whole_slice(Shape{0, 2}),
                       Tensor::empty(DType::kFloat64, Shape{0, 2}))
                  .ok());
  const Tensor words =
      Tensor::strings(Shape{2}, std::vector<std::string>{"one", "\xC3\xA9t\xC3\xA9"});
  EXPECT_TRUE(writer.add({"words", DType::kString, Shape{2}}, whole_slice(Shape{2}), words).ok());
  EXPECT_TRUE(writer.finish().ok());
  return prefix;
}

std::unique_ptr<TensorReader> opened(const std::string& path) {
  const auto found = find_checkpoint(path);
  EXPECT_TRUE(found.ok()) << found.status();
  auto reader = open_tensors(*found);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

TEST(Formats, EachKeepsAllThatItCanHold) {
  const Folder folder;
  const auto from = opened(write_bundle(folder));
  const struct {
    Format format;
    const char* path;
    std::vector<std::string> left_out;
  } all[] = {{Format::kNative, "native", {}},
             {Format::kTensorFlow, "again", {}},
             {Format::kSafetensors, "x.safetensors", {"words: safetensors has no strings"}},
             {Format::kNpz, "x.npz", {}}};
  for (const auto& one : all) {
    const std::string path = folder.path(one.path);
    const auto written = convert(from.get(), one.format, path);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->left_out, one.left_out);
    const auto reader = opened(path);
    EXPECT_EQ(written->tensors, static_cast<int64_t>(reader->list().size()));
    const auto differences = compare(from.get(), reader.get(), 0);
    ASSERT_TRUE(differences.ok()) << differences.status();
    EXPECT_EQ(differences->size(), one.left_out.size());
    for (const Difference& d : *differences) EXPECT_EQ(d.how, "only in the first");
    const bool has_slices = one.format == Format::kNative || one.format == Format::kTensorFlow;
    EXPECT_EQ(reader->find("table")->slices.size(), has_slices ? 2 : 0);
    EXPECT_THAT(reader->read("table", {{9, 2, 3}, {1, 1}})->data<float>(), ElementsAre(28, 37));
    for (const StoredTensor& stored : reader->list()) {
      EXPECT_TRUE(reader->verify(stored.name).ok()) << stored.name;
    }
  }
}

TEST(Formats, ACheckpointIsFoundByPrefixIndexFileAndFolder) {
  const Folder folder;
  const std::string prefix = write_bundle(folder);
  for (const std::string& path : {prefix, prefix + ".index", folder.path("")}) {
    const auto found = find_checkpoint(path);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(std::string_view(found->path).substr(found->path.rfind('/')), "/model.ckpt-3");
  }
  ASSERT_TRUE(convert(opened(prefix).get(), Format::kNpz, folder.path("x.npz")).ok());
  const Status which = find_checkpoint(folder.path("")).status();
  EXPECT_EQ(which.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(which), HasSubstr("x.npz"));
  folder.write("checkpoint",
               "model_checkpoint_path: \"x.npz\"\nall_model_checkpoint_paths: \"model.ckpt-3\"\n");
  EXPECT_EQ(find_checkpoint(folder.path(""))->format, Format::kNpz);
  EXPECT_EQ(find_checkpoint(folder.path("none")).status().code(), StatusCode::kNotFound);
  folder.write("some.text", "not a checkpoint");
  EXPECT_EQ(find_checkpoint(folder.path("some.text")).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Formats, NamesOfFormatsAreThoseOfTheCommandLine) {
  for (const std::string_view name : format_names()) {
    EXPECT_EQ(name_of(*format_from_name(name)), name);
  }
  EXPECT_THAT(base::message_of(format_from_name("hdf5").status()), HasSubstr("safetensors"));
}

TEST(Compare, SaysWhatDiffersAndByHowMuch) {
  const Folder folder;
  const auto write = [&](const char* name, const std::vector<float>& x, bool with_y) {
    auto writer = create_npz(folder.path(name));
    const Shape shape{2, static_cast<int64_t>(x.size() / 2)};
    EXPECT_TRUE(
        (*writer)
            ->add({"x", DType::kFloat32, shape}, whole_slice(shape), Tensor::of<float>(shape, x))
            .ok());
    if (with_y) {
      EXPECT_TRUE(
          (*writer)->add({"y", DType::kInt64, Shape{}}, {}, Tensor::scalar<int64_t>(1)).ok());
    }
    EXPECT_TRUE((*writer)->finish().ok());
    return opened(folder.path(name));
  };
  const float nan = std::nanf("");
  const auto a = write("a.npz", {1, 2, 3, nan}, false);
  const auto b = write("b.npz", {1, 2.5, 3.25, nan}, true);
  const auto c = write("c.npz", {1, 2, 3, 4, 5, 6}, false);
  const auto all = compare(a.get(), b.get(), 0);
  ASSERT_EQ(all->size(), 2);
  EXPECT_EQ((*all)[0].how, "2 of 4 elements differ, first at [0,1], by up to 0.5");
  EXPECT_EQ((*all)[1].how, "only in the second");
  EXPECT_EQ((*compare(a.get(), b.get(), 0.3))[0].how,
            "1 of 4 elements differ, first at [0,1], by up to 0.5");
  EXPECT_EQ(compare(b.get(), a.get(), 0.5)->size(), 1);
  EXPECT_EQ((*compare(a.get(), c.get(), 9))[0].how, "float32[2,2] and float32[2,3]");
  EXPECT_THAT(*compare(a.get(), a.get(), 0), IsEmpty());
}

TEST(Safetensors, AHeaderThatLiesIsRefused) {
  const Folder folder;
  const auto code_of = [&](const std::string& header) {
    uint64_t size = header.size();
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
    folder.write("x", bytes + header + std::string(16, 'x'));
    return open_safetensors(folder.path("x")).status().code();
  };
  const auto ok = StatusCode::kOk;
  const auto loss = StatusCode::kDataLoss;
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})"), ok);
  EXPECT_EQ(code_of(R"({"__metadata__":{"a":"b"}})"), ok);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})"), ok);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[4],"data_offsets":[1,17]}})"), loss);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[4],"data_offsets":[0,12]}})"), loss);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})"), loss);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})"), loss);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[4],"data_offsets":[0]}})"), loss);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,16]}})"), loss);
  EXPECT_EQ(code_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,16],)"
                    R"("data_offsets":[0,0]}})"),
            loss);
  EXPECT_EQ(code_of(R"({"x":5})"), loss);
  EXPECT_EQ(code_of(R"([1,2])"), loss);
  EXPECT_EQ(code_of(R"({"x")"), loss);
  folder.write("x", std::string(8, '\xff'));
  EXPECT_EQ(open_safetensors(folder.path("x")).status().code(), loss);
  folder.write("x", "abc");
  EXPECT_EQ(open_safetensors(folder.path("x")).status().code(), loss);
}

TEST(Npz, FindsChangedBytesAndCutOffFiles) {
  const Folder folder;
  const std::string path = folder.path("x.npz");
  {
    auto writer = create_npz(path);
    const Tensor x = numbers(DType::kInt16, Shape{30});
    ASSERT_TRUE((*writer)->add({"x", DType::kInt16, x.shape()}, whole_slice(x.shape()), x).ok());
    ASSERT_TRUE((*writer)->finish().ok());
  }
  const std::string good = folder.contents("x.npz");
  const auto status_of = [&](const std::string& bytes) {
    folder.write("x.npz", bytes);
    auto reader = open_npz(path);
    return reader.ok() ? (*reader)->read("x").status() : reader.status();
  };
  ASSERT_TRUE(status_of(good).ok());
  const size_t data = good.find("x.npy") + 5 + 20 + 128;
  for (size_t i = 0; i < 60; ++i) {
    std::string changed = good;
    changed[data + i] = static_cast<char>(changed[data + i] ^ 1);
    EXPECT_EQ(status_of(changed).code(), StatusCode::kDataLoss) << i;
  }
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(status_of(good.substr(0, n)).code(), StatusCode::kDataLoss) << n;
  }
}

TEST(Npz, RefusesStringsThatItWouldChange) {
  const Folder folder;
  auto writer = create_npz(folder.path("x.npz"));
  const Tensor s = Tensor::strings(Shape{1}, std::vector<std::string>{std::string("a\0", 2)});
  EXPECT_EQ((*writer)->add({"s", DType::kString, Shape{1}}, whole_slice(Shape{1}), s).code(),
            StatusCode::kInvalidArgument);
}

TEST(ForEachPart, GivesAllRowsOnceInPiecesOfSomeMegabytes) {
  const Slice slice{{7, 1'000'000, 3}, {0, 100}};
  int64_t next = 7;
  int parts = 0;
  const Status status = for_each_part(slice, DType::kFloat32, [&](const Slice& part) -> Status {
    EXPECT_EQ(part[0].start, next);
    EXPECT_LE(shape_of(part).num_elements() * 4, 16 << 20);
    next += part[0].count * 3;
    ++parts;
    return {};
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(next, 7 + 3'000'000);
  EXPECT_GT(parts, 20);
}

}  // namespace
}  // namespace sidereal::ckpt
