// Ranks together: sums and their order, ranks that part ways, die, say nothing or are strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <map>

#include "base/comm.h"
#include "base/error.h"
#include "base/frames.h"
#include "base/rank_env.h"
#include "base/rng.h"
#include "base/timer.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace dflash {
namespace {

using ::testing::HasSubstr;
using testing::rank_places;
using testing::run_ranks;

const std::vector<std::string> kNoErrors(2, "");

float value(int rank, size_t i) {
  return static_cast<float>(normal01({static_cast<uint64_t>(rank), i}));
}

/// The sum in the order of the ranks, rounded after every addition.
float sum_of(int world, size_t i) {
  float sum = value(0, i);
  for (int r = 1; r < world; ++r) sum += value(r, i);
  return sum;
}

TEST(Comm, SumsInTheOrderOfTheRanks) {
  for (const int world : {1, 2, 3, 5}) {
    for (const size_t size : {0, 1, 4, 12345}) {
      const auto errors = run_ranks(world, [&](Comm& comm) {
        std::vector<float> values(size);
        for (size_t i = 0; i < size; ++i) values[i] = value(comm.rank(), i);
        const std::span<float> all(values);
        comm.all_reduce_sum({all.first(size / 3), {}, all.subspan(size / 3)});
        for (size_t i = 0; i < size; ++i) {
          ASSERT_EQ(values[i], sum_of(world, i)) << "value " << i << " of rank " << comm.rank();
        }
      });
      EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(world), ""));
    }
  }
}

// Larger than what is summed at once, and parts whose borders fall elsewhere.
TEST(Comm, SumsOfSeveralChunks) {
  constexpr size_t kFirst = (size_t{1} << 22) + 5, kSecond = (size_t{1} << 22) + 77;
  const auto errors = run_ranks(2, [&](Comm& comm) {
    std::vector<float> a(kFirst), b(kSecond);
    for (size_t i = 0; i < kFirst; ++i) a[i] = static_cast<float>((i % 1000) + comm.rank());
    for (size_t i = 0; i < kSecond; ++i) b[i] = static_cast<float>(i % 777) * 0.5F;
    comm.all_reduce_sum({a, b});
    for (size_t i = 0; i < kFirst; ++i) ASSERT_EQ(a[i], static_cast<float>(2 * (i % 1000) + 1));
    for (size_t i = 0; i < kSecond; ++i) ASSERT_EQ(b[i], static_cast<float>(i % 777));
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(Comm, SmallValuesAndTexts) {
  for (const int world : {1, 3}) {
    const auto errors = run_ranks(world, [&](Comm& comm) {
      const int rank = comm.rank();
      std::vector<double> doubles = {1.5 * rank, 1e-300};
      comm.all_reduce_sum(std::span(doubles));
      EXPECT_EQ(doubles[0], world == 3 ? 4.5 : 0.0);
      std::vector<int64_t> integers = {rank, int64_t{1} << 60};
      comm.all_reduce_sum(std::span(integers));
      EXPECT_EQ(integers[0], world == 3 ? 3 : 0);
      EXPECT_EQ(integers[1], world * (int64_t{1} << 60));
      std::string text = rank == 0 ? std::string(100'000, 'x') : "mine";
      comm.broadcast(text);
      EXPECT_EQ(text, std::string(100'000, 'x'));
      EXPECT_EQ(comm.lead(7.5 + rank), 7.5);
      const auto all = comm.all_gather(std::string(static_cast<size_t>(rank), 'r'));
      ASSERT_EQ(all.size(), static_cast<size_t>(world));
      for (size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r].size(), r);
      comm.barrier();
      EXPECT_EQ(comm.num_collectives(), 6);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(world), ""));
  }
}

TEST(Comm, AloneNothingChanges) {
  std::vector<float> values = {1.5F};
  double number = 0.1;
  solo_comm().all_reduce_sum({values});
  solo_comm().all_reduce_sum(std::span(&number, 1));
  EXPECT_EQ(values[0], 1.5F);
  EXPECT_EQ(number, 0.1);
  EXPECT_EQ(solo_comm().lead(3), 3);
  EXPECT_EQ(solo_comm().all_gather("x"), std::vector<std::string>{"x"});
  EXPECT_TRUE(solo_comm().alone() && solo_comm().leads());
}

TEST(Comm, RanksThatPartWaysFailAtOnce) {
  const Timer timer;
  const auto errors = run_ranks(2, [&](Comm& comm) {
    std::vector<float> values(120);
    comm.barrier();
    if (comm.rank() == 1) {
      comm.all_reduce_sum({values});
    } else {
      comm.barrier();
    }
  });
  for (const std::string& error : errors) {  // seen, or told by the one that saw it first
    EXPECT_THAT(error, ::testing::AnyOf(HasSubstr("rank 1 does all_reduce of 120 floats (message "
                                                  "2), rank 0 barrier (message 2)"),
                                        HasSubstr("rank 0 does barrier (message 2), rank 1 "
                                                  "all_reduce of 120 floats (message 2)")));
  }
  const auto sizes = run_ranks(3, [&](Comm& comm) {
    std::vector<float> values(comm.rank() == 2 ? 10 : 12);
    comm.all_reduce_sum({values});
  });
  for (const std::string& error : sizes) EXPECT_THAT(error, HasSubstr("part ways"));
  EXPECT_LT(timer.seconds(), 10);
}

TEST(Comm, ARankThatFailsTellsTheOthers) {
  const Timer timer;
  const auto errors = run_ranks(3, [&](Comm& comm) {
    std::vector<float> values(100'000, 1.0F);
    comm.all_reduce_sum({values});
    if (comm.rank() == 1) fail("disk full\n  hint: make room");
    comm.all_reduce_sum({values});
  });
  EXPECT_EQ(errors[1], "disk full\n  hint: make room");
  for (int r : {0, 2}) EXPECT_EQ(errors[r], "ranks: rank 1 failed: disk full\n  hint: make room");
  EXPECT_LT(timer.seconds(), 10);
}

// A process that is killed says nothing; the others do not wait for it.
TEST(Comm, TheDeathOfARankEndsTheOthers) {
  auto places = rank_places(3);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto comm = join_ranks(places[2]);
    comm->barrier();
    ::raise(SIGKILL);
  }
  places.pop_back();
  const Timer timer;
  const auto errors = run_ranks(places, [&](Comm& comm) {
    std::vector<float> values(3'000'000, 1.0F);  // more than sockets hold
    comm.barrier();
    comm.all_reduce_sum({values});
  });
  EXPECT_LT(timer.seconds(), 10);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("ranks: rank 2 ended or cannot be reached any more (all_reduce of "
                                 "3000000 floats)\n  hint: "));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Comm, ASilentRankIsGivenUp) {
  const auto errors = run_ranks(rank_places(2, /*peer_seconds=*/0.5), [&](Comm& comm) {
    if (comm.rank() == 1) ::sleep(2);
    comm.barrier();
    comm.barrier();  // what the other had sent before it gave up was the first
  });
  EXPECT_THAT(errors[0], HasSubstr("nothing came from rank 1"));
  EXPECT_THAT(errors[0], HasSubstr("--rank-timeout"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0 failed: ranks: nothing came from rank 1"));
}

/// Joins as `rank`, then sends what no rank would.
void send_as_rank_1(const RankPlace& place, const FrameHead& head) {
  std::string why;
  const Socket socket = connect_to({place.address, place.port}, 5, why);
  Hello hello{.rank = 1, .world = 2, .port = 1};
  set_field(hello.token, place.token);
  ASSERT_TRUE(write_all(socket, bytes_of(hello), 5));
  std::vector<std::byte> roster(sizeof(FrameHead) + 2 * sizeof(RosterEntry));
  ASSERT_TRUE(read_all(socket, roster, 5));
  FrameHead sent = head;
  ASSERT_TRUE(write_all(socket, bytes_of(sent), 5));
  std::vector<std::byte> rest(1);
  read_all(socket, rest, 5);
}

TEST(Comm, SizesFromTheNetworkAreChecked) {
  constexpr auto kGather = static_cast<uint16_t>(CommKind::kGather);
  const std::pair<FrameHead, const char*> cases[] = {
      {{.kind = kGather, .sequence = 1, .bytes = uint64_t{1} << 60}, "does not fit all_gather"},
      {{.kind = kLastWords, .bytes = uint64_t{1} << 60}, "part ways"},
      {{.magic = 5, .kind = kGather, .sequence = 1}, "part ways"},
      {{.kind = kGather, .sequence = 2}, "part ways"},
      {{.kind = kGather, .sequence = 1, .count = 3}, "part ways"}};
  for (const auto& [head, expected] : cases) {
    auto places = rank_places(2);
    std::thread stranger([&, &head = head] { send_as_rank_1(places[1], head); });
    const auto errors = run_ranks({places[0]}, [&](Comm& comm) { comm.all_gather("x"); });
    EXPECT_THAT(errors[0], HasSubstr(expected));
    stranger.join();
  }
}

TEST(Join, StrangersAreKeptOutAndDisturbNothing) {
  auto places = rank_places(3);
  std::string why;
  const Socket silent = connect_to({"127.0.0.1", places[0].port}, 5, why);
  const Socket noise = connect_to({"127.0.0.1", places[0].port}, 5, why);
  std::string text(sizeof(Hello), 'G');
  ASSERT_TRUE(write_all(noise, std::as_bytes(std::span(text)), 5));
  RankPlace other = places[1];
  other.token = "another run's";
  std::string refused;
  std::thread stranger([&] { refused = testing::error_text([&] { join_ranks(other); }); });
  ::usleep(200'000);  // it is the first to knock
  EXPECT_EQ(run_ranks(places, [](Comm& comm) { comm.barrier(); }), std::vector<std::string>(3, ""));
  stranger.join();
  EXPECT_THAT(refused, HasSubstr("rank 0 refuses: it belongs to another run"));
}

TEST(Join, RanksThatContradictEachOtherFail) {
  auto places = rank_places(2);
  places[1].world = 3;
  auto errors = run_ranks(places, [](Comm&) {});
  EXPECT_THAT(errors[0], HasSubstr("rank 1 says that there are 3 ranks, rank 0 that there are 2"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0 refuses: rank 1 says"));
  places = rank_places(3);
  places[2].rank = 1;
  errors = run_ranks(places, [](Comm&) {});
  EXPECT_THAT(errors[0], HasSubstr("two processes claim to be rank 1"));
}

TEST(Join, AMissingRankIsNamed) {
  auto places = rank_places(3);
  places.pop_back();
  for (RankPlace& place : places) place.join_seconds = 0.5;
  const auto errors = run_ranks(places, [](Comm&) {});
  EXPECT_THAT(errors[0], HasSubstr("rank 0 of 3 waited 0 s for rank 2"));
  EXPECT_FALSE(errors[1].empty());
}

std::optional<RankPlace> place_of(const std::map<std::string, std::string>& variables) {
  return place_from_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(RankEnvironment, EveryLauncherIsUnderstood) {
  EXPECT_FALSE(place_of({}));
  EXPECT_FALSE(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(place_of({{"SLURM_NTASKS", "4"}})) << "a shell of salloc";
  EXPECT_FALSE(place_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"ENVIRONMENT", "BATCH"}}))
      << "the script itself";
  const auto torch = place_of({{"RANK", "2"},
                               {"WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "1234"},
                               {"DFLASH_RUN_TOKEN", "t"}});
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->rank, 2);
  EXPECT_EQ(torch->world, 4);
  EXPECT_EQ(torch->address, "node1");
  EXPECT_EQ(torch->port, 1234);
  EXPECT_EQ(torch->token, "t");
  const auto mpi = place_of({{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(mpi);
  EXPECT_EQ(mpi->address, "127.0.0.1");
  EXPECT_EQ(mpi->port, 29500);
  const auto slurm =
      place_of({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"MASTER_ADDR", "10.0.0.1"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->rank, 3);
  EXPECT_EQ(slurm->world, 8);
}

TEST(RankEnvironment, HalfOfItIsAnError) {
  const auto error = [](const std::map<std::string, std::string>& variables) {
    return testing::error_of<Error>([&] { place_of(variables); });
  };
  EXPECT_THAT(error({{"WORLD_SIZE", "2"}}), HasSubstr("expected RANK"));
  EXPECT_THAT(error({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK: expected a number"));
  EXPECT_THAT(error({{"RANK", "0"}, {"WORLD_SIZE", "two"}}), HasSubstr("got 'two'"));
  EXPECT_THAT(
      error(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "99999999"}}),
      HasSubstr("MASTER_PORT"));
}

}  // namespace
}  // namespace dflash
