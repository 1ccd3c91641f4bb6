#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ckpt/npz.h"
#include "sidereal/ckpt/tensor_bundle.h"
#include "sidereal/ckpt/testing/folder.h"
#include "sidereal/cli/commands.h"

namespace sidereal::cli {
namespace {

using ckpt::Folder;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;
using ::testing::Not;

/// What a command line prints, and how it ends.
struct Said {
  std::string out;
  Status status;
};

Said run_line(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ckpt");
  const Parsed parsed = parse(std::move(arguments));
  EXPECT_TRUE(parsed.action) << parsed.error;
  Said said;
  if (!parsed.action) return said;
  testing::internal::CaptureStdout();
  said.status = parsed.action();
  said.out = testing::internal::GetCapturedStdout();
  return said;
}

/// A table of 100 rows with slots, and a step, as a tensor bundle; `first` is its first element.
std::string write_model(const Folder& folder, const char* name, float first = 0) {
  std::string prefix = folder.path(name);
  auto writer = ckpt::create_tensor_bundle(prefix);
  EXPECT_TRUE(writer.ok()) << writer.status();
  const Shape shape{100, 3};
  for (const char* tensor : {"table", "table/Adagrad", "tables"}) {
    Tensor values = ckpt::numbers(DType::kFloat32, shape);
    values.data<float>()[0] = first;
    EXPECT_TRUE(
        (*writer)->add({tensor, DType::kFloat32, shape}, ckpt::whole_slice(shape), values).ok());
  }
  EXPECT_TRUE(
      (*writer)->add({"table/step", DType::kInt64, Shape{}}, {}, Tensor::scalar<int64_t>(9)).ok());
  EXPECT_TRUE((*writer)->finish().ok());
  return prefix;
}

TEST(CkptCommand, ListsTensors) {
  const Folder folder;
  write_model(folder, "model.ckpt-9");
  const Said said = run_line({"ls", folder.path("")});
  EXPECT_TRUE(said.status.ok()) << said.status;
  EXPECT_THAT(said.out, HasSubstr("model.ckpt-9 (tf)"));
  EXPECT_THAT(said.out, HasSubstr("table/Adagrad"));
  EXPECT_THAT(said.out, HasSubstr("[100,3]"));
  EXPECT_THAT(said.out, HasSubstr("4 tensors, 3.5 KiB"));
  EXPECT_EQ(run_line({"ls", folder.path("none")}).status.code(), StatusCode::kNotFound);
}

TEST(CkptCommand, PrintsATensorUpToALimit) {
  const Folder folder;
  const std::string path = write_model(folder, "m", 0.1F);
  EXPECT_EQ(run_line({"cat", path, "table/step"}).out, "table/step: int64[]\n9\n");
  const Said few = run_line({"cat", path, "table", "--limit", "5"});
  EXPECT_EQ(few.out,
            "table: float32[100,3]\n0.1 1 2\n3 4\n... and 295 more; --limit 0 shows all\n");
  EXPECT_THAT(run_line({"cat", path, "table", "--limit", "0"}).out, HasSubstr("297 298 299\n"));
  const Said missing = run_line({"cat", path, "Adagrad"});
  EXPECT_EQ(missing.status.code(), StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(missing.status), HasSubstr("table/Adagrad"));
}

TEST(CkptCommand, PrintsRowsOfATableAndOfItsSlots) {
  const Folder folder;
  const std::string path = write_model(folder, "m");
  const Said said = run_line({"rows", path, "table", "7", "99"});
  EXPECT_EQ(said.out,
            "row 7\n  table: 21 22 23\n  table/Adagrad: 21 22 23\n"
            "row 99\n  table: 297 298 299\n  table/Adagrad: 297 298 299\n");
  EXPECT_EQ(run_line({"rows", path, "table", "100"}).status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(run_line({"rows", path, "table", "-1"}).status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(run_line({"rows", path, "table/step", "0"}).status.code(),
            StatusCode::kInvalidArgument);
}

TEST(CkptCommand, VariablesOfObjectsAreFoundByTheNamesOfObjects) {
  const Folder folder;
  const std::string path = folder.path("m");
  auto writer = ckpt::create_tensor_bundle(path);
  const Shape shape{4, 2};
  for (const char* name : {"net/users/.ATTRIBUTES/VARIABLE_VALUE",
                           "net/users/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE"}) {
    EXPECT_TRUE((*writer)
                    ->add({name, DType::kFloat32, shape}, ckpt::whole_slice(shape),
                          ckpt::numbers(DType::kFloat32, shape))
                    .ok());
  }
  EXPECT_TRUE((*writer)->finish().ok());
  EXPECT_EQ(run_line({"rows", path, "net/users", "2"}).out,
            "row 2\n  net/users/.ATTRIBUTES/VARIABLE_VALUE: 4 5\n"
            "  net/users/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE: 4 5\n");
  EXPECT_THAT(run_line({"cat", path, "net/users"}).out, HasSubstr("float32[4,2]\n0 1\n2 3\n"));
}

TEST(CkptCommand, ComparesCheckpoints) {
  const Folder folder;
  const std::string a = write_model(folder, "a");
  const std::string b = write_model(folder, "b", 0.5F);
  const Said differ = run_line({"diff", a, b});
  EXPECT_EQ(differ.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(differ.out,
              HasSubstr("table: 1 of 300 elements differ, first at [0,0], by up to 0.5\n"));
  EXPECT_THAT(differ.out, Not(HasSubstr("step")));
  EXPECT_TRUE(run_line({"diff", a, b, "--tolerance", "0.5"}).status.ok());
  EXPECT_EQ(run_line({"diff", a, a}).out, "4 tensors are equal\n");
}

TEST(CkptCommand, VerifyNamesWhatIsDamaged) {
  const Folder folder;
  const std::string path = write_model(folder, "m");
  EXPECT_THAT(run_line({"verify", path}).out, HasSubstr("4 tensors are whole"));
  std::string data = folder.contents("m.data-00000-of-00001");
  data[1300] ^= 1;
  folder.write("m.data-00000-of-00001", data);
  const Said said = run_line({"verify", path});
  EXPECT_EQ(said.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(base::message_of(said.status), HasSubstr("1 of 4"));
  EXPECT_THAT(said.out, HasSubstr("table/Adagrad: DATA_LOSS"));
  // Nor is it carried on.
  EXPECT_EQ(run_line({"convert", path, folder.path("m.npz")}).status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(folder.names(), Not(testing::Contains("m.npz")));
}

TEST(CkptCommand, ConvertsByTheEndOfTheNameOrByFormat) {
  const Folder folder;
  const std::string path = write_model(folder, "m");
  for (const char* name : {"x.npz", "x.safetensors"}) {
    const Said said = run_line({"convert", path, folder.path(name)});
    EXPECT_TRUE(said.status.ok()) << said.status;
    EXPECT_TRUE(run_line({"diff", path, folder.path(name)}).status.ok());
  }
  const std::string back = folder.path("back");
  EXPECT_EQ(run_line({"convert", folder.path("x.npz"), back}).status.code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(run_line({"convert", folder.path("x.npz"), back, "--to", "tf"}).status.ok());
  EXPECT_TRUE(run_line({"diff", path, back}).status.ok());
  const Said again = run_line({"convert", path, back, "--to", "tf"});
  EXPECT_EQ(again.status.code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(run_line({"convert", path, back, "--to", "tf", "--force"}).status.ok());
  EXPECT_EQ(run_line({"convert", path, path, "--to", "tf", "--force"}).status.code(),
            StatusCode::kInvalidArgument);
}

TEST(CkptCommand, WrongUsageIsToldWithTheFormatsThatThereAre) {
  EXPECT_EQ(parse({"ckpt"}).exit_code, 2);
  EXPECT_EQ(parse({"ckpt", "rows", "m", "table"}).exit_code, 2);
  EXPECT_EQ(parse({"ckpt", "diff", "m", "n", "--tolerance", "-1"}).exit_code, 2);
  const Parsed parsed = parse({"ckpt", "convert", "m", "n", "--to", "hdf5"});
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(parsed.error, HasSubstr("safetensors"));
}

}  // namespace
}  // namespace sidereal::cli
