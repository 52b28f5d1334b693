// The ranks of a job: how many there are, which one this is, which share its host, and groups of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace strata::comm {

// How ranks are placed on hosts, or on other fast domains: ranks of one domain exchange faster.
struct Topology {
  std::vector<int> domain_of;  // by rank; empty: one domain
};

// The domains of some ranks, by member.
Topology among(const Topology& all, std::span<const int> members);

struct WorldOptions {
  // Seconds that a rank may be silent (no heartbeat: stopped, or its host is gone) before the job ends.
  double silence_limit = 8;
  // Seconds that a rank may wait in one collective for ranks that are alive before the job ends.
  double wait_limit = 1800;
  // Bytes of a message; larger ones go in chunks.
  int64_t chunk_bytes = 1 << 20;
  // Who makes progress: a thread for each rank, or the callers of start, test and wait.
  bool progress_thread = false;
};

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;  // from 0
  virtual int size() const = 0;
  virtual std::string_view engine() const = 0;  // "local", "mpi"; "single" for a single process
  // Among the ranks of this host, and the host's name.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual const std::string& host() const = 0;
  // Which ranks share one; the same on all ranks.
  virtual Topology hosts() const = 0;

  // Applies to groups made afterwards; the same on all ranks.
  virtual void configure(const WorldOptions& options) = 0;
  // A group of these ranks, in this order, which every member makes at the same place of its program.
  // `topology` by member: with more than one domain, sums and gathers are hierarchical. Groups may be used
  // from different threads, each from one at a time.
  virtual std::unique_ptr<Communicator> group(std::span<const int> ranks, std::string name,
                                              const Topology& topology = {}) = 0;
  // Returns when every rank has come here, however long that takes (`wait_limit` is for groups). What ranks
  // wrote into a shared folder before is visible after.
  virtual void barrier() = 0;

  // What this rank is doing, for the reports of the watchdog: "forward of micro-batch 3, step 17". Cheap.
  virtual void doing(std::string_view what) = 0;
  // The last collectives of this rank, a line each: group, number, label, bytes, times.
  virtual std::string flight_record() const = 0;
  // Notifies all ranks that this one failed: their collectives, running and future, throw a WorldError with
  // this
  // message. Returns when they know, or after a second; buffers of collectives in flight may be freed then,
  // and not before. Between processes the world's end then ends the job, with the first failing rank's code
  // as the launcher's: when that rank has come there, or five seconds after another one has. What a rank has
  // to report of an error it reports before.
  virtual void fail(int code, std::string_view message) = 0;
  // The rank with whose failure the job ends, or that found another one gone, as far as is known here; −1:
  // none.
  virtual int failed_rank() const = 0;
  // Throws what collectives throw, where some rank has failed. Cheap: for loops that wait for something else.
  virtual void check() = 0;
  // Ends all ranks, those that wait for this one too. The launcher's exit code is `code`; after a fail(), the
  // first failing rank's.
  [[noreturn]] virtual void abort(int code) = 0;
};

// fail(), but where this is not the first rank half a second later, unless another rank has failed by then:
// only the first rank reports an error that all find, such as a wrong configuration key.
void fail_once(World& world, int code, std::string_view message);

// A single process.
std::unique_ptr<World> single_process_world();

// The ranks that mpirun (or another launcher: Slurm, PMIx, MPICH's) started, otherwise a single process. MPI
// is a separate library, loaded only then, so that others start without it. WorldError if a launcher started
// several ranks and this build has no MPI, with the package to install; ConfigError if the environment
// contradicts itself.
std::unique_ptr<World> world_of_launcher();

// Runs `body` on `ranks` threads of this process, one a rank, and returns when all are done; a single one
// runs on the caller's. Where one throws, the others' collectives fail, and the first error is rethrown here
// as it was thrown.
void run_local_ranks(int ranks, const std::function<void(World&)>& body);

}  // namespace strata::comm
