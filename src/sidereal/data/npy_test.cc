#include "sidereal/data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "sidereal/data/random.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/row_parser.h"
#include "sidereal/data/testing/files.h"

namespace sidereal::data {
namespace {

using tensor::DType;
using tensor::Shape;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string error_of(const std::string& path) {
  const auto mapped = map_npy(path);
  EXPECT_EQ(mapped.status().code(), StatusCode::kInvalidArgument);
  return base::message_of(mapped.status());
}

TEST(Npy, MapsEachSupportedType) {
  const TestFolder folder;
  const auto f4 =
      map_npy(folder.write("f4", npy("'<f4'", "(2, 3)", bytes_of<float>({1, 2, 3, 4, 5, 6}))));
  ASSERT_TRUE(f4.ok()) << f4.status();
  EXPECT_EQ(f4->data.shape(), (Shape{2, 3}));
  EXPECT_THAT(f4->data.data<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(map_npy(folder.write("f8", npy("'<f8'", "(1,)", bytes_of<double>({7}))))->data.dtype(),
            DType::kFloat64);
  EXPECT_EQ(map_npy(folder.write("i4", npy("'<i4'", "(1,)", bytes_of<int32_t>({7}))))->data.dtype(),
            DType::kInt32);
  EXPECT_EQ(map_npy(folder.write("i8", npy("'<i8'", "(1,)", bytes_of<int64_t>({7}))))->data.dtype(),
            DType::kInt64);
  EXPECT_EQ(map_npy(folder.write("u1", npy("'|u1'", "(1,)", "x")))->data.dtype(), DType::kUInt8);
  EXPECT_EQ(map_npy(folder.write("b1", npy("'|b1'", "(1,)", "\x01")))->data.dtype(), DType::kBool);
  EXPECT_EQ(map_npy(folder.write("none", npy("'<f4'", "(0, 3)", "")))->data.num_elements(), 0);
}

TEST(Npy, ReadsVersionTwoAndUnalignedData) {
  const TestFolder folder;
  const std::string dictionary = "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}\n";
  std::string file = "\x93NUMPY";
  file += std::string("\x02\x00", 2);
  const auto length = static_cast<uint32_t>(dictionary.size());
  file += bytes_of<uint32_t>({length}) + dictionary + bytes_of<int64_t>({-5});
  const auto mapped = map_npy(folder.write("v2", file));
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_THAT(mapped->data.data<int64_t>(), ElementsAre(-5));
}

TEST(Npy, SaysWhatIsWrongAndWhatToDo) {
  const TestFolder folder;
  const std::string data(64, '\0');
  EXPECT_THAT(error_of(folder.write("a", npy("'>f4'", "(1,)", data))), HasSubstr(".astype"));
  EXPECT_THAT(error_of(folder.write("a", npy("[('x', '<f4')]", "(1,)", data))),
              HasSubstr("records"));
  EXPECT_THAT(error_of(folder.write("a", npy("'<f4'", "(2, 2)", data, "True"))),
              HasSubstr("Fortran"));
  EXPECT_THAT(error_of(folder.write("a", npy("'<f4'", "(100,)", data))), HasSubstr("cut off"));
  EXPECT_THAT(error_of(folder.write("a", npy("'<f4'", "()", data))), HasSubstr("single number"));
  EXPECT_THAT(error_of(folder.write("a", npy("'<f4'", "(-1,)", data))), HasSubstr("shape"));
  EXPECT_THAT(error_of(folder.write(
                  "a", npy("'<f4'", "(281474976710656, 281474976710656, 281474976710656)", data))),
              HasSubstr("cut off"));
  EXPECT_THAT(error_of(folder.write("a", "label,x\n1,2\n")), HasSubstr("not a .npy file"));
  EXPECT_THAT(error_of(folder.write("a", "")), HasSubstr("empty"));
  EXPECT_EQ(map_npy(folder.path("nothing")).status().code(), StatusCode::kNotFound);
}

std::string text_of(Text text, std::string_view room) {
  std::string out;
  const Status read = append_text(text, std::as_bytes(std::span(room)), &out);
  return read.ok() ? out : base::message_of(read);
}

TEST(Npy, MapsStringsOfBytesAndOfCodePoints) {
  const TestFolder folder;
  const auto bytes = map_npy(folder.write("s", npy("'|S3'", "(2,)", {"ab\0cde", 6})));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->text, Text::kBytes);
  EXPECT_EQ(bytes->data.shape(), (Shape{2, 3}));
  const auto points =
      map_npy(folder.write("u", npy("'<U2'", "(1,)", bytes_of<uint32_t>({0x41, 0}))));
  ASSERT_TRUE(points.ok()) << points.status();
  EXPECT_EQ(points->text, Text::kUtf32);
  EXPECT_EQ(points->data.shape(), (Shape{1, 8}));
  for (const char* wrong : {"'|S0'", "'<U-1'", "'<U'", "'<U99999999999'", "'|Sx'", "'>U3'"}) {
    EXPECT_THAT(error_of(folder.write("w", npy(wrong, "(1,)", "abcd"))),
                testing::AnyOf(HasSubstr("strings"), HasSubstr(".astype")))
        << wrong;
  }
  EXPECT_THAT(error_of(folder.write("w", npy("'<U3'", "(1,)", "abcd"))), HasSubstr("cut off"));
}

TEST(Npy, StringsEndBeforeTheirLastNulsAndCodePointsBecomeUtf8) {
  EXPECT_EQ(text_of(Text::kBytes, {"a\0b\0\0", 5}), std::string("a\0b", 3));
  EXPECT_EQ(text_of(Text::kBytes, {"\0\0", 2}), "");
  const std::string points = bytes_of<uint32_t>({0x41, 0x100, 0x20AC, 0x1F600, 0x10000, 0, 0});
  EXPECT_EQ(text_of(Text::kUtf32, points), "A\xC4\x80\xE2\x82\xAC\xF0\x9F\x98\x80\xF0\x90\x80\x80");
  EXPECT_THAT(text_of(Text::kUtf32, bytes_of<uint32_t>({0xD800})), HasSubstr("0xd800"));
  EXPECT_THAT(text_of(Text::kUtf32, bytes_of<uint32_t>({0x110000})), HasSubstr("0x110000"));
}

TEST(Npy, MutatedFilesNeverCrash) {
  const TestFolder folder;
  const std::string good = npy("'<f4'", "(2, 3)", bytes_of<float>({1, 2, 3, 4, 5, 6}));
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    for (int edit = 0; edit < 3; ++edit) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(128));
    }
    bytes.resize(random.below(bytes.size() + 1));
    const auto mapped = map_npy(folder.write("x", bytes));
    if (!mapped.ok()) continue;
    EXPECT_EQ(mapped->data.clone().shape(), mapped->data.shape());
  }
}

DataSpec array_spec(const TestFolder& folder) {
  DataSpec spec;
  spec.format = Format::kArrays;
  spec.arrays = {
      {"y", folder.write("y.npy", npy("'<i8'", "(5,)", bytes_of<int64_t>({0, 1, 0, 1, 1})))},
      {"x", folder.write("x.npy",
                         npy("'<f8'", "(5, 2)", bytes_of<double>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9})))},
      {"u", folder.write("u.npy", npy("'<i4'", "(5,)", bytes_of<int32_t>({5, 6, 7, 8, 9})))}};
  spec.label = "y";
  spec.numeric = {"x"};
  spec.categorical = {"u"};
  spec.id_space = 10;
  return spec;
}

TEST(Arrays, GiveStringsAsTheyAreAndHashThemAsOtherTextIs) {
  const TestFolder folder;
  DataSpec spec = array_spec(folder);
  const std::string text("a\0bc\0\0d\0ee", 10);
  spec.arrays.emplace_back("t", folder.write("t.npy", npy("'|S2'", "(5,)", text)));
  spec.arrays.emplace_back(
      "pair",
      folder.write("p.npy",
                   npy("'<U1'", "(5, 2)",
                       bytes_of<uint32_t>({'a', 'b', 'c', 0, 'e', 'f', 'g', 'h', 0x20AC, 'j'}))));
  spec.categorical = {"t"};
  spec.id_space = 0;
  spec.hash_buckets = 1000;
  ReadOptions options;
  options.batch_size = 5;
  auto reader = Reader::open(spec, options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_THAT(batch.find("t")->data<const std::string_view>(),
              ElementsAre("a", "bc", "", "d", "ee"));
  EXPECT_EQ(batch.find("pair")->to_string(), "string[5,2]");
  EXPECT_THAT(batch.find("pair")->data<const std::string_view>(),
              ElementsAre("a", "b", "c", "", "e", "f", "g", "h", "\xE2\x82\xAC", "j"));
  EXPECT_EQ(batch.ids.data<int64_t>()[1], category_id("bc", 0, 1000));

  spec.id_space = 10;
  EXPECT_THAT(base::message_of(inspect(spec).status()), HasSubstr("'t' is string[5]"));
  spec.categorical = {};
  spec.numeric = {"t"};
  EXPECT_EQ(inspect(spec).status().code(), StatusCode::kInvalidArgument);
  spec.numeric = {};
  spec.label = "t";
  EXPECT_EQ(inspect(spec).status().code(), StatusCode::kInvalidArgument);
}

TEST(Arrays, GiveEveryColumnUnderItsNameAndTheRolesAskedFor) {
  const TestFolder folder;
  const DataSpec spec = array_spec(folder);
  const auto schema = inspect(spec);
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->dense_width, 2);
  EXPECT_EQ(schema->fields, 1);
  EXPECT_EQ(schema->rows, 10);
  ReadOptions options;
  options.batch_size = 3;
  auto reader = Reader::open(spec, options);
  ASSERT_TRUE(reader.ok());
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_THAT(rows_of(batch), ElementsAre("0|0,1|5|", "1|2,3|6|", "0|4,5|7|"));
  ASSERT_NE(batch.find("x"), nullptr);
  EXPECT_EQ(batch.find("x")->to_string(), "float64[3,2]");
  EXPECT_THAT(batch.find("u")->data<int32_t>(), ElementsAre(5, 6, 7));
  EXPECT_EQ(batch.find("z"), nullptr);
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_EQ(batch.rows, 2);
  EXPECT_THAT(batch.find("u")->data<int32_t>(), ElementsAre(8, 9));
  EXPECT_FALSE(*(*reader)->next(&batch));
  EXPECT_EQ((*reader)->stats().progress, 1);
}

TEST(Arrays, WithoutRolesAreColumnsOnly) {
  const TestFolder folder;
  DataSpec spec = array_spec(folder);
  spec.label = "";
  spec.numeric = {};
  spec.categorical = {};
  EXPECT_FALSE(inspect(spec)->has_label);
  auto reader = Reader::open(spec, {});
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  EXPECT_FALSE(batch.label.defined());
  EXPECT_EQ(batch.columns.size(), 3);
}

TEST(Arrays, IdsAreHashedWithoutAnIdSpace) {
  const TestFolder folder;
  DataSpec spec = array_spec(folder);
  spec.id_space = 0;
  spec.hash_buckets = 100;
  auto reader = Reader::open(spec, {});
  Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  const int64_t five = 5;
  EXPECT_EQ(batch.ids.data<int64_t>()[0],
            category_id({reinterpret_cast<const char*>(&five), sizeof(five)}, 0, 100));
}

TEST(Arrays, NameTheFileAndRowOfWhatIsWrong) {
  const TestFolder folder;
  const auto message = [&](const DataSpec& spec) {
    auto reader = Reader::open(spec, {});
    if (!reader.ok()) return base::message_of(reader.status());
    Batch batch;
    return base::message_of((*reader)->next(&batch).status());
  };
  DataSpec spec = array_spec(folder);
  spec.id_space = 9;
  EXPECT_THAT(message(spec), HasSubstr("u.npy: row 4: id 9 in 'u' is outside [0, 9)"));
  spec = array_spec(folder);
  spec.label = "u";
  EXPECT_THAT(message(spec), HasSubstr("u.npy: row 0: the label is 5"));
  spec.label = "x";
  EXPECT_THAT(message(spec), HasSubstr("one number per row"));
  spec.label = "z";
  EXPECT_THAT(message(spec), HasSubstr("no array 'z'; the arrays are: y, x, u"));
  spec = array_spec(folder);
  spec.categorical = {"x"};
  EXPECT_THAT(message(spec), HasSubstr("ids are integers"));
  spec = array_spec(folder);
  spec.arrays.emplace_back("w", folder.write("w.npy", npy("'<i4'", "(1,)", bytes_of<int>({1}))));
  EXPECT_THAT(message(spec), HasSubstr("array 'w' has 1 rows, but 'y' has 5"));
}

}  // namespace
}  // namespace sidereal::data
