#include "sidereal/train/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sidereal/ckpt/index.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ACheckpointDirectory : public ::testing::Test {
 protected:
  ACheckpointDirectory() : path_(::testing::TempDir() + fmt::format("ckpts_{}", ::getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~ACheckpointDirectory() override { std::filesystem::remove_all(path_); }

  std::unique_ptr<CheckpointDirectory> open(int64_t keep = 5) const {
    auto out = CheckpointDirectory::open(sys::posix::create_disk(), path_, keep);
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? *std::move(out) : nullptr;
  }
  void write(const std::string& name, const std::string& text = "x") const {
    std::ofstream(path_ + "/" + name) << text;
  }
  /// As the parameter servers do.
  void write_checkpoint(const std::string& name) const {
    write(name + ".data-00000-of-00001.1a2b3c4d");
    write(name + ".index");
  }
  void save(CheckpointDirectory* directory, int64_t step) const {
    const auto prefix = directory->begin(step);
    ASSERT_TRUE(prefix.ok()) << prefix.status();
    EXPECT_EQ(*prefix, fmt::format("{}/model.ckpt-{}", path_, step));
    write_checkpoint(fmt::format("model.ckpt-{}", step));
    const Status added = directory->add(*prefix);
    EXPECT_TRUE(added.ok()) << added;
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return std::filesystem::exists(path_ + "/" + name);
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string path_;
};

TEST_F(ACheckpointDirectory, lists_what_there_is_as_tensorflow_does) {
  {
    const auto directory = open();
    EXPECT_THAT(directory->newest_first(), IsEmpty());
    save(directory.get(), 3);
    save(directory.get(), 12);
    EXPECT_THAT(directory->newest_first(),
                ElementsAre(path_ + "/model.ckpt-12", path_ + "/model.ckpt-3"));
  }
  EXPECT_EQ(text_of("checkpoint"),
            "model_checkpoint_path: \"model.ckpt-12\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-3\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-12\"\n");
  EXPECT_THAT(open()->newest_first(),
              ElementsAre(path_ + "/model.ckpt-12", path_ + "/model.ckpt-3"));
}

TEST_F(ACheckpointDirectory, removes_the_oldest_and_nothing_else) {
  const auto directory = open(2);
  write("model.ckpt-1000.index", "somebody's");
  write("notes.txt");
  for (const int64_t step : {1, 2, 3}) save(directory.get(), step);
  EXPECT_FALSE(has("model.ckpt-1.index"));
  EXPECT_FALSE(has("model.ckpt-1.data-00000-of-00001.1a2b3c4d"));
  EXPECT_TRUE(has("model.ckpt-2.index"));
  EXPECT_TRUE(has("model.ckpt-2.data-00000-of-00001.1a2b3c4d"));
  EXPECT_TRUE(has("model.ckpt-1000.index"));
  EXPECT_TRUE(has("notes.txt"));
}

TEST_F(ACheckpointDirectory, keeps_what_a_newer_one_stands_on) {
  const auto save_on = [&](CheckpointDirectory* directory, int64_t step, const std::string& base) {
    const auto prefix = directory->begin(step);
    ASSERT_TRUE(prefix.ok()) << prefix.status();
    const std::string name = fmt::format("model.ckpt-{}", step);
    write(name + ".data-00000-of-00001.1a2b3c4d");
    write(name + ".index", ckpt::encode({.base = base}));
    EXPECT_TRUE(directory->add(*prefix).ok());
  };
  {
    const auto directory = open(1);
    save_on(directory.get(), 1, "");
    save_on(directory.get(), 2, "model.ckpt-1");
    save_on(directory.get(), 3, "model.ckpt-2");
    EXPECT_TRUE(has("model.ckpt-1.index") && has("model.ckpt-2.index"));
  }
  // Also when another process goes on.
  const auto directory = open(1);
  EXPECT_THAT(
      directory->newest_first(),
      ElementsAre(path_ + "/model.ckpt-3", path_ + "/model.ckpt-2", path_ + "/model.ckpt-1"));
  save_on(directory.get(), 4, "");
  EXPECT_THAT(directory->newest_first(), ElementsAre(path_ + "/model.ckpt-4"));
  for (const int step : {1, 2, 3}) EXPECT_FALSE(has(fmt::format("model.ckpt-{}.index", step)));
  EXPECT_FALSE(has("model.ckpt-1.data-00000-of-00001.1a2b3c4d"));
  // One that is written anew would give what stands on it other values.
  save_on(directory.get(), 5, "model.ckpt-4");
  directory->forget_after("");
  save_on(directory.get(), 4, "");
  EXPECT_FALSE(has("model.ckpt-5.index"));
  EXPECT_TRUE(has("model.ckpt-4.index"));
}

TEST_F(ACheckpointDirectory, is_refused_to_a_second_writer) {
  const auto directory = open();
  const Status refused = CheckpointDirectory::open(sys::posix::create_disk(), path_, 5).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(refused), HasSubstr(fmt::format("process {} ", ::getpid())));
  EXPECT_THAT(base::message_of(refused), HasSubstr(path_));
}

TEST_F(ACheckpointDirectory, clears_up_after_a_writer_that_was_killed_while_it_saved) {
  save(open().get(), 3);
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  write("checkpoint.lock", fmt::format("process 1 on {}\nsaving model.ckpt-6\n", host));
  write("model.ckpt-6.data-00000-of-00002.11111111");
  write("model.ckpt-6.index.0123456789abcdef.tmp");
  EXPECT_THAT(open()->newest_first(), ElementsAre(path_ + "/model.ckpt-3"));
  EXPECT_FALSE(has("model.ckpt-6.data-00000-of-00002.11111111"));
  EXPECT_FALSE(has("model.ckpt-6.index.0123456789abcdef.tmp"));
}

TEST_F(ACheckpointDirectory, removes_what_a_writer_was_killed_in_the_middle_of_removing) {
  {
    const auto directory = open(1);
    save(directory.get(), 3);
    save(directory.get(), 6);
  }
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  write("checkpoint.lock",
        fmt::format("process 1 on {}\nsaving model.ckpt-6 removing model.ckpt-3\n", host));
  write("model.ckpt-3.data-00001-of-00002.11111111");
  EXPECT_THAT(open()->newest_first(), ElementsAre(path_ + "/model.ckpt-6"));
  EXPECT_FALSE(has("model.ckpt-3.data-00001-of-00002.11111111"));
}

TEST_F(ACheckpointDirectory, knows_what_was_put_in_place_before_a_kill) {
  save(open().get(), 3);
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  write("checkpoint.lock", fmt::format("process 1 on {}\nsaving model.ckpt-6\n", host));
  write_checkpoint("model.ckpt-6");
  EXPECT_THAT(open()->newest_first(),
              ElementsAre(path_ + "/model.ckpt-6", path_ + "/model.ckpt-3"));
  // The next one was killed too, before it had saved.
  write("checkpoint.lock", fmt::format("process 1 on {}\nsaving model.ckpt-9\n", host));
  EXPECT_THAT(open()->newest_first(),
              ElementsAre(path_ + "/model.ckpt-6", path_ + "/model.ckpt-3"));
}

TEST_F(ACheckpointDirectory, forgets_a_future_that_was_left) {
  {
    const auto directory = open();
    for (const int64_t step : {1, 2, 3}) save(directory.get(), step);
    directory->forget_after(path_ + "/model.ckpt-1");
    // Of the name of one that is no part of this training.
    ASSERT_TRUE(directory->begin(3).ok());
    EXPECT_FALSE(has("model.ckpt-3.index"));
    EXPECT_TRUE(has("model.ckpt-2.index"));
    write_checkpoint("model.ckpt-3");
    ASSERT_TRUE(directory->add(path_ + "/model.ckpt-3").ok());
  }
  EXPECT_THAT(open()->newest_first(),
              ElementsAre(path_ + "/model.ckpt-3", path_ + "/model.ckpt-1"));
}

TEST(CheckpointsListed, are_those_of_a_state_file_of_tensorflow) {
  EXPECT_THAT(checkpoints_listed("model_checkpoint_path: \"/a b/\\\"m\\\"-2\"\n"
                                 "all_model_checkpoint_paths: \"m-1\"\n"
                                 "all_model_checkpoint_paths: \"/a b/\\\"m\\\"-2\"\n"
                                 "all_model_checkpoint_paths: \"m-3\"\n"
                                 "all_model_checkpoint_timestamps: 1700000000.5\n"),
              ElementsAre("m-1", "m-3", "/a b/\"m\"-2"));
  EXPECT_THAT(checkpoints_listed(""), IsEmpty());
  EXPECT_THAT(checkpoints_listed("model_checkpoint_path: \"m"), ElementsAre("m"));
}

}  // namespace
}  // namespace sidereal::train
