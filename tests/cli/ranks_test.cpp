// train by several processes, from outside: a tiny random target in a folder, the built program.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "base/files.h"
#include "base/sockets.h"
#include "base/timer.h"
#include "data/dataset.h"
#include "jobs/fixtures.h"
#include "nn/tensor_io.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFolder;
namespace fs = std::filesystem;

constexpr int64_t kVocab = 600;

/// The golden model gqa with a larger vocabulary, as the small tokenizer needs it.
void write_target(const fs::path& folder) {
  const fs::path golden = testing::source_path("tests/golden/target/gqa");
  fs::create_directories(folder);
  fs::copy(testing::source_path("tests/golden/text/mini_smollm/tokenizer.json"), folder);
  Json config = read_json(golden / "config.json");
  config["vocab_size"] = kVocab;
  write_json(folder / "config.json", config);
  auto tensors = nn::load_tensors(golden / "model.safetensors");
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    tensors.at(name) = tensors.at(name).repeat({7, 1}).narrow(0, 0, kVocab).roll({1}, {1}).clone();
  }
  nn::save_tensors(folder / "model.safetensors", tensors);
}

/// A running `dflash-cpp`, its output in files.
class Program {
 public:
  Program(const fs::path& output, const std::string& arguments,
          const std::vector<std::string>& environment = {})
      : out_(output.string() + ".out"), err_(output.string() + ".err") {
    std::vector<std::string> words = {"env", "OMP_WAIT_POLICY=passive"};
    words.insert(words.end(), environment.begin(), environment.end());
    words.push_back(tree::program().string());
    std::istringstream stream(arguments);
    for (std::string word; stream >> word;) words.push_back(word);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    for (const auto& [path, fd] : {std::pair(out_.c_str(), 1), {err_.c_str(), 2}}) {
      ::dup2(::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644), fd);
    }
    ::execvp("env", argv.data());
    ::_exit(127);
  }
  ~Program() {
    if (pid_ > 0) wait(/*seconds=*/0);
  }

  /// The exit code, 128 + n after signal n; -1 when it had to be killed after `seconds`.
  int wait(double seconds = 120) {
    const Timer timer;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      ::usleep(20'000);
      if (timer.seconds() < seconds) continue;
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      pid_ = -1;
      return -1;
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void send(int number) const { ::kill(pid_, number); }
  /// Its ranks, in the order in which it started them.
  std::vector<pid_t> children() const {
    std::istringstream list(testing::read_file(fmt::format("/proc/{0}/task/{0}/children", pid_)));
    std::vector<pid_t> out;
    for (pid_t pid; list >> pid;) out.push_back(pid);
    return out;
  }
  std::string out() const { return testing::read_file(out_); }
  std::string err() const { return testing::read_file(err_); }

 private:
  fs::path out_, err_;
  pid_t pid_ = -1;
};

/// Target and dataset in a folder, and the command that trains there.
struct Place {
  Place() {
    write_target(folder / "target");
    data::save_dataset(folder / "set", jobs::tiny_dataset(12));
  }
  std::string train(const std::string& run, const std::string& more) const {
    return fmt::format(
        "train --target {} --dataset {} --out {} --layers 1 --block-size 4 --taps 0,1 --mask-id "
        "599 --dtype f32 --threads 1 --anchors-per-step 30 --row-tokens 40 --validate-every 0 "
        "--json {}",
        path("target"), path("set"), path(run), more);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  std::string weights(const std::string& run, int step) const {
    const auto checkpoint = fmt::format("checkpoints/step-{:06}", step);
    return testing::read_file(folder / run / checkpoint / "model/model.safetensors");
  }
  int64_t lines(const std::string& run) const {
    const std::string text = testing::read_file(folder / run / "metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }
  void wait_for_lines(const std::string& run, int64_t count) const {
    for (const Timer timer; lines(run) < count && timer.seconds() < 60;) ::usleep(20'000);
    ASSERT_GE(lines(run), count);
  }

  TempFolder folder;
};

TEST(RankedProgram, TrainsAsOneDoesAndGoesOn) {
  const Place place;
  Program one(place.folder / "one", place.train("alone", "--steps 6 --save-every 3"));
  Program two(place.folder / "two", place.train("run", "--steps 6 --save-every 3 --nproc 2"));
  ASSERT_EQ(one.wait(), 0) << one.err();
  ASSERT_EQ(two.wait(), 0) << two.err();
  EXPECT_EQ(Json::parse(two.out())["steps"], 6) << "one result, of rank 0";
  std::istringstream first(testing::read_file(place.folder / "alone/metrics.jsonl"));
  std::istringstream second(testing::read_file(place.folder / "run/metrics.jsonl"));
  for (std::string a, b; std::getline(first, a);) {
    ASSERT_TRUE(std::getline(second, b));
    const Json want = Json::parse(a), got = Json::parse(b);
    EXPECT_NEAR(got["loss"].get<double>(), want["loss"].get<double>(), 1e-4);
    for (const char* key : {"step", "epoch", "documents", "tokens", "anchors", "trained_slots"}) {
      EXPECT_EQ(got[key], want[key]) << key;
    }
  }
  for (const char* file : {"run.json", "config.toml", "checkpoints/step-000006/COMPLETE"}) {
    EXPECT_TRUE(fs::exists(place.folder / "run" / file)) << file;
  }
  EXPECT_EQ(read_json(place.folder / "run/run.json")["header"]["machine"]["ranks"], 2);
  const std::string whole = place.weights("run", 6);
  fs::remove_all(place.folder / "run/checkpoints/step-000006");  // as if ended after step 3
  Program again(place.folder / "again", place.train("run", "--steps 6 --save-every 3 --nproc 2"));
  ASSERT_EQ(again.wait(), 0) << again.err();
  EXPECT_THAT(again.err(), HasSubstr("resumed at step 3 of 6"));
  EXPECT_TRUE(place.weights("run", 6) == whole);
  EXPECT_EQ(place.lines("run"), 6);
}

TEST(RankedProgram, ASignalStopsAllWithACheckpoint) {
  const Place place;
  Program run(place.folder / "log", place.train("run", "--steps 1000000 --nproc 2"));
  place.wait_for_lines("run", 3);
  const std::vector<pid_t> ranks = run.children();
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(ranks[1], SIGTERM);  // to one rank alone
  EXPECT_EQ(run.wait(), 143) << run.err();
  for (const pid_t pid : ranks) EXPECT_NE(::kill(pid, 0), 0) << "still there";
  const int64_t steps = place.lines("run");
  EXPECT_FALSE(place.weights("run", static_cast<int>(steps)).empty()) << run.err();
  Program on(place.folder / "on",
             place.train("run", fmt::format("--resume --nproc 2 --steps {}", steps + 2)));
  ASSERT_EQ(on.wait(), 0) << on.err();
  EXPECT_EQ(place.lines("run"), steps + 2);
  EXPECT_THAT(on.err(), Not(HasSubstr("ranks was"))) << "as many as before";
}

TEST(RankedProgram, TheDeathOfARankEndsTheOther) {
  const Place place;
  Program run(place.folder / "log", place.train("run", "--steps 1000000 --nproc 2"));
  place.wait_for_lines("run", 2);
  const std::vector<pid_t> ranks = run.children();
  ASSERT_EQ(ranks.size(), 2U);
  const Timer timer;
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(run.wait(), 137) << run.err();
  EXPECT_LT(timer.seconds(), 30);
  EXPECT_THAT(run.err(), HasSubstr("rank 1 was ended by signal 9"));
  EXPECT_THAT(run.err(), HasSubstr("error: ranks: rank 1 ended or cannot be reached any more"));
  EXPECT_NE(::kill(ranks[0], 0), 0);
}

// Without the launcher: two commands with the usual variables, which contradict each other.
TEST(RankedProgram, OtherOptionsOnAnotherRankAreNamed) {
  const Place place;
  const auto port = own_end(listen_at({"127.0.0.1", 0})).port;
  const auto start = [&](int rank, const std::string& more) {
    return std::make_unique<Program>(
        place.folder / fmt::format("log{}", rank), place.train("run", "--steps 3 " + more),
        std::vector<std::string>{fmt::format("RANK={}", rank), "WORLD_SIZE=2",
                                 "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port)});
  };
  auto first = start(0, ""), second = start(1, "--lr 0.5");
  EXPECT_EQ(first->wait(), 1);
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(first->err(), HasSubstr("options/optimizer/lr: rank 0 has 0.0006, rank 1 has 0.5"));
  EXPECT_THAT(second->err(), HasSubstr("error: rank 1: ranks: "));
  first = start(0, "");
  second = start(1, "");
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_EQ(second->wait(), 0) << second->err();
  EXPECT_EQ(Json::parse(first->out())["steps"], 3);
  EXPECT_EQ(second->out() + second->err(), "");
}

TEST(RankedProgram, MistakesAreSaidBeforeAnythingStarts) {
  TempFolder folder;
  Program steps(folder / "a", "train --dataset d --nproc 2 --steps 1 --minutes 1");
  EXPECT_EQ(steps.wait(), 1);
  EXPECT_THAT(steps.err(), HasSubstr("expected --minutes or --steps"));
  Program world(folder / "b", "train --dataset d --nproc 3",
                {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"});
  EXPECT_EQ(world.wait(), 1);
  EXPECT_THAT(world.err(), HasSubstr("--nproc 3: the environment says that there are 2 ranks"));
  Program address(folder / "c", "train --dataset d", {"RANK=0", "WORLD_SIZE=2"});
  EXPECT_EQ(address.wait(), 1);
  EXPECT_THAT(address.err(), HasSubstr("MASTER_ADDR"));
}

}  // namespace
}  // namespace dflash
