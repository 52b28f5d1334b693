// The ranks of a job: their number, this rank, the ranks that share its host, and groups of ranks.
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
  // Whether a thread of each rank makes progress, or the callers of start, test and wait.
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
  // The host of each rank; the same on all ranks.
  virtual Topology hosts() const = 0;

  // Applies to groups created afterwards; the same on all ranks.
  virtual void configure(const WorldOptions& options) = 0;
  // A group of these ranks, in this order; every member creates it at the same point of its program.
  // `topology` by member: with more than one domain, sums and gathers are hierarchical. Threads may use
  // different groups at the same time, but only one thread may use a group at a time.
  virtual std::unique_ptr<Communicator> group(std::span<const int> ranks, std::string name,
                                              const Topology& topology = {}) = 0;
  // Returns when every rank has called it, without a time limit (`wait_limit` applies to groups only). Files
  // that ranks wrote to a shared folder before are visible after.
  virtual void barrier() = 0;

  // Records what this rank is doing, for the watchdog's reports: "forward of micro-batch 3, step 17". Cheap.
  virtual void doing(std::string_view what) = 0;
  // The last collectives of this rank, a line each: group, number, label, bytes, times.
  virtual std::string flight_record() const = 0;
  // Notifies all ranks that this one failed: their running and future collectives throw a WorldError with
  // this message. Returns when they know, or after a second; only then may buffers of collectives in flight
  // be freed. Between processes, destroying the World then ends the job, and the launcher exits with the
  // first failing rank's code: when that rank gets there, or five seconds after another one does. Report the
  // error before that.
  virtual void fail(int code, std::string_view message) = 0;
  // The rank whose failure ends the job, or that found another one gone, as far as this rank knows; −1: none.
  virtual int failed_rank() const = 0;
  // For tests of recovery: the next message of this rank, on any group of several ranks, is lost. In a
  // collective it is as if this rank had not started it; later messages on that group are lost too.
  virtual void lose_next() {}
  // Throws like collectives if any rank has failed. Cheap: for loops that wait for something else.
  virtual void check() = 0;
  // Ends all ranks, including those that wait for this one. The launcher's exit code is `code`; after a
  // fail(), it is the first failing rank's.
  [[noreturn]] virtual void abort(int code) = 0;
};

// Like fail(), but ranks other than 0 wait up to half a second for another rank to fail first, so that rank 0
// reports an error that all ranks find, such as a wrong configuration key.
void fail_once(World& world, int code, std::string_view message);

// A single process.
std::unique_ptr<World> single_process_world();

// The ranks started by mpirun (or another launcher: Slurm, PMIx, MPICH's), otherwise a single process. MPI is
// a separate module, loaded only under a launcher, so that other runs start without it. WorldError if a
// launcher started several ranks and this build has no MPI, with the package to install; ConfigError if the
// environment is inconsistent.
std::unique_ptr<World> world_of_launcher();

// Runs `body` on `ranks` threads of this process, one per rank, and returns when all are done; a single rank
// runs on the caller's thread. If one throws, the others' collectives fail, and the first error is rethrown
// here unchanged.
void run_local_ranks(int ranks, const std::function<void(World&)>& body);

}  // namespace strata::comm
