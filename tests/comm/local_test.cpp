// Engine `local`: all cases of collectives, errors, waits, and single processes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/collective_cases.h"
#include "comm/exchange.h"
#include "comm/scenarios.h"

namespace strata::comm {
namespace {

using Results = std::vector<std::vector<std::vector<Bytes>>>;  // by rank, case, transfer

Results run(int size, const WorldOptions& options, const std::vector<Case>& cases) {
  Results results(static_cast<size_t>(size));
  run_local_ranks(size, [&](World& world) {
    world.configure(options);
    results[static_cast<size_t>(world.rank())] = run_all_cases(world, cases);
  });
  return results;
}

void expect_right(const Results& results, const std::vector<Case>& cases) {
  const int size = static_cast<int>(results.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto expected = expected_results(cases[i], size);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      for (size_t t = 0; t < expected[rank].size(); ++t) {
        EXPECT_TRUE(results[rank][i][t] == expected[rank][t])
            << cases[i].name << ", transfer " << t << ", rank " << rank << " of " << size;
      }
    }
  }
}

class LocalSizes : public testing::TestWithParam<int> {};

TEST_P(LocalSizes, YieldTheExpectedResults) {
  const auto cases = collective_cases();
  expect_right(run(GetParam(), {}, cases), cases);
}

TEST_P(LocalSizes, YieldTheSameBitsInSmallChunksAndWithAThread) {
  const auto cases = collective_cases();
  expect_right(run(GetParam(), {.chunk_bytes = 64, .progress_thread = true}, cases), cases);
}

INSTANTIATE_TEST_SUITE_P(Comm, LocalSizes, testing::Values(1, 2, 3, 4, 5, 8));

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(Local, GroupsAndMessagesOfAMeshOverlap) {
  for (const bool thread : {false, true}) {
    run_local_ranks(4, [&](World& world) {
      world.configure({.chunk_bytes = 1024, .progress_thread = thread});
      run_scenarios(world);
    });
  }
}

TEST(Local, AnErrorOfOneRankReachesAllAndIsRethrownUnchanged) {
  std::atomic<int> notified{0};
  try {
    run_local_ranks(4, [&](World& world) {
      world.barrier();
      if (world.rank() == 2) throw DataError("shard 7 is torn");
      try {
        world.barrier();
      } catch (const WorldError& error) {
        if (std::string(error.what()) == "shard 7 is torn") ++notified;
        EXPECT_THROW(world.check(), WorldError);
        throw;
      }
    });
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "shard 7 is torn");
  }
  EXPECT_EQ(notified, 3);
}

std::string error_of(int size, const std::function<void(World&)>& body) {
  try {
    run_local_ranks(size, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
}

// Its buffers may be freed while peers are about to read them. All ranks get its own message.
TEST(Local, ARankThatUnwindsDuringACollectiveEndsTheOthers) {
  std::string reported;
  const std::string text = error_of(2, [&](World& world) {
    std::vector<float> values(1 << 20);
    const auto group = world.group(first_ranks(2), "pair");
    const auto sum = group->prepare({.transfers = {{.bytes = 4 << 20}}, .label = "sum"});
    const Buffers buffers[] = {{values.data(), values.data()}};
    const Ticket ticket = group->start(*sum, buffers);
    if (world.rank() == 0) throw std::runtime_error("out of patience");
    try {
      group->wait(ticket);
      world.barrier();
    } catch (const WorldError& error) {
      reported = error.what();
    }
  });
  EXPECT_EQ(text, "out of patience");
  EXPECT_EQ(reported, "out of patience");
}

TEST(Local, ARankThatDropsACollectiveEndsTheJob) {
  const std::string text = error_of(2, [&](World& world) {
    float value = 1;
    {
      const auto group = world.group(first_ranks(2), "pair");
      const auto sum = group->prepare({.transfers = {{.bytes = 4}}, .label = "sum"});
      const Buffers buffers[] = {{&value, &value}};
      const Ticket ticket = group->start(*sum, buffers);
      if (world.rank() == 1) group->wait(ticket);
    }
    world.barrier();
  });
  expect_parts(text, {"rank 0 left group 'pair' before its collectives were done"});
}

TEST(Local, ATimeoutNamesCollectiveAndRanks) {
  const std::string text = error_of(3, [](World& world) {
    world.configure({.wait_limit = 0.2});
    const auto group = world.group(first_ranks(3), "shard");
    group->barrier();
    float value = 1;
    const auto sum =
        group->prepare({.transfers = {{.bytes = 4}}, .label = "all-reduce of layer 3's gradients"});
    const Buffers buffers[] = {{&value, &value}};
    world.doing(world.rank() == 1 ? "forward of micro-batch 3, step 17" : "backward");
    if (world.rank() == 1) {
      while (true) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        world.check();
      }
    }
    group->wait(group->start(*sum, buffers));
  });
  expect_parts(
      text, {"all-reduce of layer 3's gradients, number 2 of group 'shard'", "ranks 0 and 2 have waited 0.",
             "for rank 1.", "Rank 1: doing forward of micro-batch 3, step 17; last collective: barrier",
             "Rank 0: doing backward"});
}

// One message of rank 1 is lost, in a collective or between two ranks: the others report that it is missing.
TEST(Local, ALostMessageIsReported) {
  for (const bool collective : {true, false}) {
    const std::string text = error_of(3, [&](World& world) {
      world.configure({.wait_limit = 0.2});
      const auto group = world.group(first_ranks(3), "shard");
      group->barrier();
      if (world.rank() == 1) world.lose_next();
      float value = 1;
      if (collective) {
        group->barrier();
      } else if (world.rank() == 1) {
        group->wait(group->send(0, &value, 4));
      } else if (world.rank() == 0) {
        group->wait(group->receive(1, &value, 4));
      }
      group->barrier();
    });
    EXPECT_NE(text.find(collective ? "barrier, number 2 of group 'shard'" : "of group 'shard'"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("ank 1"), std::string::npos) << text;
  }
}

TEST(Local, NoRankWaitsForOneThatEnded) {
  const std::string text = error_of(2, [](World& world) {
    if (world.rank() == 0) world.barrier();
  });
  expect_parts(text, {"barrier, number 1 of group 'world'", "rank 1 has ended without it"});
}

TEST(Local, MembersThatDisagreeAreNamed) {
  const auto with = [](const std::function<Operation(int)>& operation, bool adds = false) {
    return error_of(2, [&](World& world) {
      const auto group = world.group(first_ranks(2), "pair");
      std::vector<double> in(4), out(4);
      const auto prepared = group->prepare(operation(world.rank()));
      const Buffers buffers[] = {{in.data(), out.data(), adds && world.rank() == 0}};
      group->wait(group->start(*prepared, buffers));
    });
  };
  expect_parts(
      with([](int rank) { return Operation{.transfers = {{.bytes = 8 + 8 * rank}}, .label = "sums"}; }),
      {"[sums] number 1 of group 'pair'", "in transfer 0: expected"});
  expect_parts(with([](int rank) {
                 return Operation{.collective = rank == 0 ? Collective::kAllReduce : Collective::kBroadcast,
                                  .transfers = {{.bytes = 8}},
                                  .label = "mixed"};
               }),
               {"different collectives"});
  expect_parts(
      with([](int rank) {
        return Operation{.transfers = {{.dtype = rank == 0 ? DType::kF32 : DType::kI32, .bytes = 8}}};
      }),
      {"different dtypes"});
  expect_parts(with([](int) { return Operation{.transfers = {{.bytes = 8}}}; }, true),
               {"disagree on accumulation"});
}

TEST(Local, InvalidOperationsAreRejected) {
  const auto refused = [](const Operation& operation) {
    return error_of(2, [&](World& world) { world.group(first_ranks(2), "pair")->prepare(operation); });
  };
  expect_parts(refused({.transfers = {{.dtype = DType::kBool, .bytes = 8}}}), {"cannot sum bool"});
  expect_parts(refused({.transfers = {{.bytes = 7}}}), {"7 bytes of f32"});
  expect_parts(refused({.transfers = {}, .root = 2}), {"found root 2: expected a member below 2"});
  expect_parts(refused({.transfers = {}, .payload = DType::kF16}), {"found payload f16"});
  expect_parts(refused({.collective = Collective::kExchange, .transfers = {{.bytes = 8}}}),
               {"sends to 0 members"});
  expect_parts(
      refused(
          {.collective = Collective::kReduceScatter,
           .transfers = {{.send = {{{.bytes = 8}}}, .receive = {{{.offset = 4, .bytes = 8}}}, .bytes = 8}}}),
      {"a run ends at 12 in a buffer of 8 bytes"});
  expect_parts(refused({.collective = Collective::kReduceScatter,
                        .transfers = {{.send = {{{.bytes = 8}}}, .receive = {{{.bytes = 4}}}, .bytes = 8}}}),
               {"sends itself 8 bytes and receives 4"});
  EXPECT_THROW(run_local_ranks(2, [](World& world) { world.group(first_ranks(1), "one"); }), InternalError);
}

// A waiting rank leaves its core to others: it sleeps almost all of the time.
TEST(Local, WaitingTakesNoProcessorTime) {
  run_local_ranks(2, [](World& world) {
    timespec before{}, after{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    world.barrier();
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    EXPECT_LT(static_cast<double>(after.tv_sec - before.tv_sec) +
                  1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec),
              0.03);
  });
}

TEST(Local, TheFlightRecorderHoldsTheLastCollectives) {
  run_local_ranks(2, [](World& world) {
    for (int i = 0; i < 100; ++i) world.barrier();
    const std::string text = world.flight_record();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 64);
    EXPECT_NE(text.find("barrier (0 B, number 100 of group 'world')"), std::string::npos) << text;
    EXPECT_EQ(text.find("number 36 of"), std::string::npos);
  });
}

TEST(SingleProcess, HasGroupsOfOneRank) {
  const auto world = single_process_world();
  EXPECT_EQ(world->engine(), "single");
  EXPECT_EQ(world->size(), 1);
  world->configure({.progress_thread = true});
  const auto cases = collective_cases();
  const auto results = run_all_cases(*world, cases);
  expect_right({results}, cases);
  world->barrier();
}

TEST(SingleProcess, ReturnsItsOwnValues) {
  run_local_ranks(1, [caller = std::this_thread::get_id()](World& world) {
    EXPECT_EQ(world.engine(), "single");
    EXPECT_EQ(std::this_thread::get_id(), caller);
    const auto group = world.group(first_ranks(1), "single");
    // Sums over several ranks would flush it to zero.
    const double tiny = std::numeric_limits<double>::denorm_min();
    EXPECT_EQ(gather_texts(*group, "a\nb"), std::vector<std::string>{"a\nb"});
    EXPECT_EQ(broadcast_text(*group, "c"), "c");
    EXPECT_EQ(gather_values(*group, tiny), std::vector{tiny});
    EXPECT_EQ(max_over(*group, -2), -2);
    EXPECT_EQ(min_over(*group, 3), 3);
    EXPECT_EQ(sum_over(*group, 0.1), 0.1);
    std::vector<double> values{0.1, tiny};
    sum_over(*group, values);
    EXPECT_EQ(values, (std::vector{0.1, tiny}));
    EXPECT_EQ(group->staging_bytes(), 0);
  });
}

// The number of threads of a large local job: start, a collective, end.
TEST(Local, SixtyFourRanksStartQuickly) {
  const auto begun = std::chrono::steady_clock::now();
  std::atomic<int> right{0};
  run_local_ranks(64, [&](World& world) {
    const auto group = world.group(first_ranks(64), "all");
    std::vector<float> values(100, 1);
    const auto sum = group->prepare({.transfers = {{.bytes = 400}}, .label = "sum"});
    const Buffers buffers[] = {{values.data(), values.data()}};
    for (int i = 0; i < 3; ++i) group->wait(group->start(*sum, buffers));
    right += values[99] == 64 * 64 * 64 ? 1 : 0;
  });
  EXPECT_EQ(right, 64);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

}  // namespace
}  // namespace strata::comm
