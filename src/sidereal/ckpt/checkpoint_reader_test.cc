#include "sidereal/ckpt/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "sidereal/base/hash.h"
#include "sidereal/sys/sim/disk.h"
#include "sidereal/sys/sim/rng.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::ckpt {
namespace {

using sys::sim::SimDisk;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;

constexpr const char* kPrefix = "d/model.ckpt-5";

/// What a test saves: a slice of a tensor, all of it or some rows.
struct Part {
  std::string name;
  Tensor whole;
  Slice slice;
  std::vector<int64_t> rows = {};
  bool is_increment = false;
};

std::vector<std::byte> bytes_of(const Tensor& value) {
  return {value.raw(), value.raw() + value.nbytes()};
}

/// The elements of a slice.
Tensor part_of(const Tensor& whole, const Slice& slice) {
  Tensor out = *tensor_for(whole.dtype(), shape_of(slice));
  copy_common(whole_slice(whole.shape()), whole, slice, &out);
  return out;
}

/// Writes the parts of one task.
Result<Index> write_shard(const std::shared_ptr<SimDisk>& disk, const std::string& prefix,
                          int64_t shard, int64_t shards, const std::vector<Part>& parts,
                          uint64_t cut) {
  const std::string name = data_file_name(prefix, shard, shards, cut);
  SR_ASSIGN_OR_RETURN(const auto file, DataWriter::create(disk, "d/" + name));
  Index out{.cuts = {cut}, .files = {{name, 0}}};
  for (const Part& part : parts) {
    Entry& entry = out.entries.emplace_back();
    entry = {.name = part.name,
             .dtype = part.whole.dtype(),
             .shape = part.whole.shape(),
             .slice = part.slice,
             .is_increment = part.is_increment,
             .changes_made = "of " + part.name};
    const Tensor elements = part_of(part.whole, part.slice);
    std::vector<std::byte> data = bytes_of(elements);
    if (part.is_increment) {
      const size_t row = data.size() / static_cast<size_t>(elements.shape().dim(0));
      std::vector<std::byte> some;
      for (const int64_t r : part.rows) {
        const auto from = data.begin() + r * static_cast<int64_t>(row);
        some.insert(some.end(), from, from + static_cast<int64_t>(row));
      }
      data = some;
      ExtentWriter rows(file.get(), file->reserve(part.rows.size() * sizeof(int64_t)));
      SR_RETURN_IF_ERROR(rows.append(std::as_bytes(std::span(part.rows))));
      SR_ASSIGN_OR_RETURN(entry.rows, rows.finish());
    }
    ExtentWriter writer(file.get(), file->reserve(data.size()));
    // In pieces of any size.
    for (size_t at = 0; at < data.size(); at += 300'001) {
      SR_RETURN_IF_ERROR(
          writer.append(std::span(data).subspan(at, std::min<size_t>(300'001, data.size() - at))));
    }
    SR_ASSIGN_OR_RETURN(entry.data, writer.finish());
  }
  out.files[0].bytes = file->size();
  SR_RETURN_IF_ERROR(file->finish());
  return out;
}

Status write_all(const std::shared_ptr<SimDisk>& disk, const std::string& prefix,
                 const std::vector<std::vector<Part>>& shards, const std::string& base = "",
                 uint64_t cut = 1) {
  std::vector<Index> parts;
  for (size_t i = 0; i < shards.size(); ++i) {
    SR_ASSIGN_OR_RETURN(Index part,
                        write_shard(disk, prefix, static_cast<int64_t>(i),
                                    static_cast<int64_t>(shards.size()), shards[i], cut * 100 + i));
    parts.push_back(decode(encode(part), "a part").value());
  }
  SR_ASSIGN_OR_RETURN(const Index index, merge(parts, base));
  return write_index(disk.get(), prefix, index, cut);
}

Tensor random_tensor(DType dtype, const Shape& shape, sys::sim::Rng* rng) {
  Tensor out = *tensor_for(dtype, shape);
  for (size_t i = 0; i < out.nbytes(); ++i) out.raw()[i] = static_cast<std::byte>(rng->next());
  if (dtype == DType::kBool) {
    for (size_t i = 0; i < out.nbytes(); ++i) out.raw()[i] &= std::byte{1};
  }
  return out;
}

/// Part `k` of `parts`: rows dealt out in turn, or ranges of rows.
Slice dealt(const Shape& shape, int64_t k, int64_t parts, bool in_turn) {
  Slice out = whole_slice(shape);
  const int64_t rows = shape.dim(0);
  if (in_turn) {
    out[0] = {k, (rows - k + parts - 1) / parts, parts};
  } else {
    const int64_t begin = rows * k / parts;
    out[0] = {begin, rows * (k + 1) / parts - begin, 1};
  }
  return out;
}

TEST(CheckpointReaderTest, AnyShardsGiveAnyOthersBitForBit) {
  sys::sim::Rng rng(3);
  const std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                                     DType::kInt64,   DType::kBool,    DType::kBFloat16,
                                     DType::kUInt8};
  for (const int64_t n : {1, 2, 3, 5, 8}) {
    auto disk = std::make_shared<SimDisk>(1);
    std::vector<std::vector<Part>> shards(static_cast<size_t>(n));
    std::vector<Tensor> wholes;
    for (size_t d = 0; d < dtypes.size(); ++d) {
      wholes.push_back(random_tensor(dtypes[d], Shape{1013, 7, 2}, &rng));
      for (int64_t k = 0; k < n; ++k) {
        shards[static_cast<size_t>(k)].push_back({.name = "t" + std::to_string(d),
                                                  .whole = wholes.back(),
                                                  .slice = dealt(Shape{1013, 7, 2}, k, n, d % 2)});
      }
    }
    ASSERT_TRUE(write_all(disk, kPrefix, shards).ok());
    const auto reader = CheckpointReader::open(disk, kPrefix).value();
    EXPECT_EQ(reader->list().size(), dtypes.size());
    for (const int64_t m : {1, 2, 3, 5, 8}) {
      for (size_t d = 0; d < dtypes.size(); ++d) {
        for (const bool in_turn : {false, true}) {
          for (int64_t k = 0; k < m; ++k) {
            const Slice slice = dealt(Shape{1013, 7, 2}, k, m, in_turn);
            const Tensor read = reader->read("t" + std::to_string(d), slice).value();
            ASSERT_EQ(bytes_of(read), bytes_of(part_of(wholes[d], slice)))
                << n << " to " << m << ", " << tensor::name_of(dtypes[d]);
          }
        }
      }
    }
  }
}

TEST(CheckpointReaderTest, IncrementsAddUpToTheState) {
  sys::sim::Rng rng(5);
  auto disk = std::make_shared<SimDisk>(1);
  const Shape shape{5000, 8};
  Tensor now = random_tensor(DType::kFloat32, shape, &rng);
  const auto parts_of = [&](int64_t parts, const std::vector<int64_t>& changed, bool increment) {
    std::vector<std::vector<Part>> out(static_cast<size_t>(parts));
    for (int64_t k = 0; k < parts; ++k) {
      Part part{.name = "w", .whole = now, .slice = dealt(shape, k, parts, true)};
      part.is_increment = increment;
      for (const int64_t row : changed) {
        if (row % parts == k) part.rows.push_back(row / parts);
      }
      out[static_cast<size_t>(k)].push_back(part);
    }
    return out;
  };
  ASSERT_TRUE(write_all(disk, "d/c-0", parts_of(3, {}, false)).ok());
  for (uint64_t i = 1; i <= 20; ++i) {
    std::vector<int64_t> changed;
    for (int64_t row = 0; row < 5000; ++row) {
      if (rng.chance(0.01)) changed.push_back(row);
    }
    now = now.clone();
    for (const int64_t row : changed) {
      for (int64_t j = 0; j < 8; ++j) now.data<float>()[row * 8 + j] += 1.0F + float(i);
    }
    ASSERT_TRUE(write_all(disk, "d/c-" + std::to_string(i), parts_of(3, changed, true),
                          "c-" + std::to_string(i - 1), i + 1)
                    .ok());
  }
  const auto reader = CheckpointReader::open(disk, "d/c-20").value();
  EXPECT_EQ(reader->base(), "c-19");
  EXPECT_EQ(bytes_of(reader->read("w").value()), bytes_of(now));
  const Slice half = dealt(shape, 1, 2, false);
  EXPECT_EQ(bytes_of(reader->read("w", half).value()), bytes_of(part_of(now, half)));
  EXPECT_EQ(reader->changes_made("w", dealt(shape, 1, 3, true)), "of w");
  EXPECT_TRUE(reader->verify("w").ok());

  ASSERT_TRUE(disk->remove("d/c-7.index").ok());
  const Status broken = CheckpointReader::open(disk, "d/c-20").status();
  EXPECT_EQ(broken.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("d/c-7"));
}

TEST(CheckpointReaderTest, HasStringsAndScalarsAndNothing) {
  auto disk = std::make_shared<SimDisk>(1);
  const std::vector<std::string> strings = {"a", "", std::string(3000, 'x')};
  std::string encoded;
  for (const std::string& one : strings) {
    const uint64_t size = one.size();
    encoded.append(reinterpret_cast<const char*>(&size), sizeof(size));
  }
  for (const std::string& one : strings) encoded += one;
  const std::string name = data_file_name(kPrefix, 0, 1, 9);
  const auto file = DataWriter::create(disk, "d/" + name).value();
  Index index{.cuts = {9}, .files = {{name, 0}}};
  const auto add = [&](const std::string& key, DType dtype, const Shape& shape,
                       std::string_view data) {
    ExtentWriter writer(file.get(), file->reserve(data.size()));
    ASSERT_TRUE(writer.append(std::as_bytes(std::span(data.data(), data.size()))).ok());
    Entry entry{.name = key, .dtype = dtype, .shape = shape, .slice = whole_slice(shape)};
    entry.data = writer.finish().value();
    index.entries.push_back(entry);
  };
  const int64_t number = 42;
  add("none", DType::kFloat32, Shape{0, 4}, "");
  add("number", DType::kInt64, Shape(), {reinterpret_cast<const char*>(&number), 8});
  add("strings", DType::kString, Shape{3}, encoded);
  index.files[0].bytes = file->size();
  ASSERT_TRUE(file->finish().ok());
  ASSERT_TRUE(write_index(disk.get(), kPrefix, merge({&index, 1}, "").value(), 1).ok());

  const auto reader = CheckpointReader::open(disk, kPrefix).value();
  EXPECT_EQ(reader->read("number").value().data<const int64_t>()[0], 42);
  EXPECT_EQ(reader->read("none").value().shape(), (Shape{0, 4}));
  const Tensor read = reader->read("strings").value();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(read.data<const std::string_view>()[i], strings[i]);
  EXPECT_EQ(reader->read("other").status().code(), StatusCode::kNotFound);
}

TEST(CheckpointReaderTest, SavingUnderTheSameNameReplacesIt) {
  auto disk = std::make_shared<SimDisk>(1);
  sys::sim::Rng rng(1);
  const Tensor one = random_tensor(DType::kFloat32, Shape{10}, &rng);
  const Tensor two = random_tensor(DType::kFloat32, Shape{10}, &rng);
  const Slice all = whole_slice(Shape{10});
  ASSERT_TRUE(write_all(disk, kPrefix, {{{.name = "w", .whole = one, .slice = all}}}, "", 1).ok());
  ASSERT_TRUE(write_all(disk, kPrefix, {{{.name = "w", .whole = two, .slice = all}}}, "", 2).ok());
  EXPECT_EQ(bytes_of(CheckpointReader::open(disk, kPrefix).value()->read("w").value()),
            bytes_of(two));
  EXPECT_EQ(disk->list("d").value().size(), 2U) << "the old data is gone";
}

/// A stop of the machine at every point of a save leaves the old checkpoint or the new one.
TEST(CheckpointReaderTest, AnyStopLeavesTheOldOneOrTheNewOne) {
  sys::sim::Rng rng(1);
  const Tensor one = random_tensor(DType::kFloat32, Shape{300'000}, &rng);
  const Tensor two = random_tensor(DType::kFloat32, Shape{300'000}, &rng);
  const Slice all = whole_slice(Shape{300'000});
  const auto shards_of = [&](const Tensor& value) {
    std::vector<std::vector<Part>> out;
    for (int i = 0; i < 40; ++i) {
      out.push_back({{.name = "w" + std::to_string(i), .whole = value, .slice = all}});
      if (i > 0) out.back()[0].whole = Tensor::of(Shape{2}, std::vector<float>{float(i), 1});
      if (i > 0) out.back()[0].slice = whole_slice(Shape{2});
    }
    return out;
  };
  uint64_t points = 0;
  bool is_whole = false;
  int olds = 0;
  int news = 0;
  for (uint64_t stop = 0; !is_whole; ++stop, ++points) {
    auto disk = std::make_shared<SimDisk>(stop);
    ASSERT_TRUE(write_all(disk, kPrefix, shards_of(one), "", 1).ok());
    const uint64_t last = disk->operations() + stop;
    disk->stop_after(last);
    const Status saved = write_all(disk, kPrefix, shards_of(two), "", 2);
    is_whole = disk->operations() <= last;
    const auto after = disk->restart();
    const auto reader = CheckpointReader::open(after, kPrefix);
    ASSERT_TRUE(reader.ok()) << "stopped at " << stop << ": " << reader.status();
    const Result<Tensor> read = (*reader)->read("w0");
    ASSERT_TRUE(read.ok()) << "stopped at " << stop << ": " << read.status();
    const bool is_new = bytes_of(*read) == bytes_of(two);
    ASSERT_TRUE(is_new || bytes_of(*read) == bytes_of(one)) << "stopped at " << stop;
    EXPECT_TRUE(is_new || !saved.ok()) << "a save that is done lasts; stopped at " << stop;
    (is_new ? news : olds) += 1;
  }
  EXPECT_GE(points, 200U);
  EXPECT_GT(olds, 0);
  EXPECT_GT(news, 0);
}

TEST(CheckpointReaderTest, EveryDamagedByteIsFound) {
  auto disk = std::make_shared<SimDisk>(1);
  sys::sim::Rng rng(9);
  const Tensor w = random_tensor(DType::kFloat32, Shape{100'000, 4}, &rng);
  ASSERT_TRUE(write_all(disk, kPrefix,
                        {{{.name = "w", .whole = w, .slice = dealt(w.shape(), 0, 2, true)}},
                         {{.name = "w", .whole = w, .slice = dealt(w.shape(), 1, 2, true)}}})
                  .ok());
  const std::vector<std::string> names = disk->list("d").value();
  ASSERT_EQ(names.size(), 3U);
  std::vector<uint64_t> sizes;
  for (const std::string& name : names) sizes.push_back(disk->contents("d/" + name)->size());
  for (int i = 0; i < 10'000; ++i) {
    const size_t which = rng.below(names.size());
    const std::string path = "d/" + names[which];
    const uint64_t at = rng.below(sizes[which]);
    const auto mask = static_cast<uint8_t>(1 + rng.below(255));
    ASSERT_TRUE(disk->damage(path, at, mask));
    const auto reader = CheckpointReader::open(disk, kPrefix);
    const Status found = reader.ok() ? (*reader)->verify("w") : reader.status();
    ASSERT_FALSE(found.ok()) << path << " byte " << at;
    ASSERT_TRUE(disk->damage(path, at, mask));
  }
  EXPECT_TRUE(CheckpointReader::open(disk, kPrefix).value()->verify("w").ok());
}

TEST(IndexTest, SaysWhatLacksOrIsThereTwice) {
  const Slice low = {{0, 4, 1}, {0, 2, 1}};
  const Slice high = {{4, 4, 1}, {0, 2, 1}};
  const auto with = [](const Slice& slice) {
    Index out{.files = {{"f", 4096}}};
    Entry entry{.name = "w", .dtype = DType::kFloat32, .shape = Shape{8, 2}, .slice = slice};
    entry.data = {.bytes = 32, .checksums = {1}};
    out.entries.push_back(entry);
    return out;
  };
  const std::vector<Index> good = {with(high), with(low)};
  EXPECT_EQ(merge(good, "").value().entries[1].data.file, 0U);
  const std::vector<Index> lacks = {with(low)};
  EXPECT_THAT(std::string(merge(lacks, "").status().message()), HasSubstr("parts of it lack"));
  const std::vector<Index> twice = {with(low), with(low)};
  EXPECT_THAT(std::string(merge(twice, "").status().message()), HasSubstr("saved twice"));
}

TEST(IndexTest, TensorsAreInOrderAndOfOneShape) {
  const auto entry = [](std::string name, const Shape& shape) {
    return Entry{.name = std::move(name),
                 .dtype = DType::kFloat32,
                 .shape = shape,
                 .slice = Slice(shape.rank())};
  };
  const auto order_of = [](std::vector<Entry> entries) {
    return check_order(Index{.entries = std::move(entries)});
  };
  EXPECT_TRUE(order_of({entry("a", {0}), entry("b", {0}), entry("b", {0})}).ok());
  EXPECT_THAT(std::string(order_of({entry("b", {0}), entry("a", {0})}).message()),
              HasSubstr("'a' follows 'b'"));
  EXPECT_THAT(std::string(order_of({entry("a", {0}), entry("a", {0, 2})}).message()),
              HasSubstr("'a' is float32[0], and float32[0,2]"));

  // Found when the file is read, before anything is looked for in it.
  auto disk = std::make_shared<SimDisk>(1);
  const std::string name = data_file_name(kPrefix, 0, 1, 9);
  ASSERT_TRUE(DataWriter::create(disk, "d/" + name).value()->finish().ok());
  Index index{.cuts = {9}, .files = {{name, 0}}};
  index.entries = {entry("b", {0}), entry("a", {0})};
  for (Entry& one : index.entries) one.slice = whole_slice(one.shape);
  ASSERT_TRUE(write_index(disk.get(), kPrefix, index, 1).ok());
  EXPECT_EQ(CheckpointReader::open(disk, kPrefix).status().code(), StatusCode::kDataLoss);
}

TEST(IndexTest, BytesAreTheseAndNoOthersAreRead) {
  Index index{.base = "c-4", .cuts = {0x1122334455667788}, .files = {{"c-5.data", 8192}}};
  Entry entry{.name = "w",
              .dtype = DType::kFloat32,
              .shape = Shape{3, 2},
              .slice = {{0, 3, 1}, {0, 2, 1}},
              .is_increment = true};
  entry.rows = {.offset = 0, .bytes = 8, .checksums = {5}};
  entry.data = {.offset = 4096, .bytes = 8, .checksums = {6}};
  entry.changes_made = "xy";
  index.entries.push_back(entry);
  const std::string bytes = encode(index);
  EXPECT_EQ(decode(bytes, "it").value(), index);
  EXPECT_EQ(base::hash64(bytes), 3604091940987539079U) << "the format has changed";
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(decode(std::string_view(bytes).substr(0, i), "it").ok());
    std::string other = bytes;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(decode(other, "it").ok()) << "byte " << i;
  }
  // Of pushes it says something in another version, which has what the first one has.
  index.entries[0].pushed = {.life = 7, .pushes = 3, .rows = 4, .table = "w"};
  const std::string later = encode(index);
  EXPECT_EQ(decode(later, "it").value(), index);
  EXPECT_EQ(base::hash64(later), 17358195726614172387U) << "the format has changed";
  for (size_t i = 0; i < later.size(); ++i) {
    EXPECT_FALSE(decode(std::string_view(later).substr(0, i), "it").ok());
  }
  EXPECT_EQ(parse_cut(cut_text({1, 255})).value(), (std::vector<uint64_t>{1, 255}));
  EXPECT_EQ(parse_cut("").value().size(), 0U);
  for (const char* bad : {"1", "000000000000000g", "0000000000000001,", ",0000000000000001"}) {
    EXPECT_EQ(parse_cut(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace sidereal::ckpt
