#include "runner/distributed/rendezvous.h"

#include <map>

#include "registry/language/error.h"
#include "tests/doctest.h"

using trainrun::first_host;
using trainrun::job_port;
using trainrun::Rendezvous;

namespace {

using Environment = std::map<std::string, std::string>;

std::optional<Rendezvous> meet(const Environment& environment, const std::optional<std::string>& address = {},
                               std::optional<int64_t> port = {}) {
  const trainrun::Variables variables = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  };
  return trainrun::rendezvous_from(variables, address, port);
}

Environment operator+(Environment all, const Environment& more) {
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}

std::string place(const std::optional<Rendezvous>& found) {
  return found ? found->address + ":" + std::to_string(found->port) : "nowhere";
}

// As Slurm 22.05 and Open MPI 4.1.4 set them.
const Environment kSlurmStep = {{"SLURM_PROCID", "5"},
                                {"SLURM_LOCALID", "1"},
                                {"SLURM_NTASKS", "8"},
                                {"SLURM_STEP_ID", "3"},
                                {"SLURM_STEP_NUM_TASKS", "8"},
                                {"SLURM_STEP_NUM_NODES", "2"},
                                {"SLURM_JOB_ID", "417"},
                                {"SLURM_STEP_NODELIST", "node[017-018]"},
                                {"SLURM_JOB_NODELIST", "node[016-018]"},
                                {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
const Environment kSlurmBatch = {{"SLURM_PROCID", "0"},
                                 {"SLURM_LOCALID", "0"},
                                 {"SLURM_NTASKS", "8"},
                                 {"SLURM_JOB_ID", "417"},
                                 {"SLURM_JOB_NODELIST", "node[016-018]"}};
const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_NAMESPACE", "1089863681"}, {"OMPI_MCA_ess_base_jobid", "1089863681"},
};
const Environment kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

}  // namespace

TEST_CASE("without a launcher's variables there is no rendezvous") {
  CHECK_FALSE(meet({}));
  CHECK_FALSE(meet({{"RANK", "1"}}));  // of how many?
  CHECK_FALSE(meet({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}));
}

TEST_CASE("torchrun's variables; Kubernetes' PyTorchJob sets no LOCAL_RANK") {
  const Environment pytorch_job = {
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
  const auto found = meet(pytorch_job + Environment{{"LOCAL_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "run"}});
  REQUIRE(found);
  CHECK(found->rank == 3);
  CHECK(found->world_size == 4);
  CHECK(found->local_rank == 1);
  CHECK(found->launcher == "torchrun");
  CHECK(found->job == "run");
  CHECK(place(found) == "job-master-0:23456");
  CHECK(meet(pytorch_job)->local_rank == 0);
  CHECK(meet(pytorch_job + Environment{{"TRAINRUN_LAUNCHED", "1"}})->launcher == "trainrun");
}

TEST_CASE("the recipe says where the ranks meet only if the launcher does not") {
  const Environment ranks = {{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  CHECK(place(meet(ranks, "10.0.0.7", 1234)) == "10.0.0.7:1234");
  CHECK(place(meet(ranks + Environment{{"MASTER_ADDR", "here"}, {"MASTER_PORT", "5"}}, "10.0.0.7", 1234)) == "here:5");
  CHECK(place(meet(kSlurmStep, "10.0.0.7", 1234)) == "10.0.0.7:1234");
}

TEST_CASE("what makes no sense is an error") {
  CHECK_THROWS_WITH_AS(meet({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK is 2 of 2", trainrun::Error);
  CHECK_THROWS_WITH_AS(meet({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), "RANK is 'one', expected a number",
                       trainrun::Error);
  CHECK_THROWS_WITH_AS(meet({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "here"}, {"MASTER_PORT", "70000"}}),
                       "MASTER_PORT is 70000, expected 1 to 65535", trainrun::Error);
  CHECK_THROWS_WITH_AS(meet({{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
                       doctest::Contains("torchrun started 2 processes, but does not say where they meet"),
                       trainrun::Error);
}

TEST_CASE("the ranks of a Slurm step meet at its first node, at a port that follows from job and step") {
  const auto found = meet(kSlurmStep);
  REQUIRE(found);
  CHECK(found->rank == 5);
  CHECK(found->world_size == 8);
  CHECK(found->local_rank == 1);
  CHECK(found->launcher == "Slurm");
  CHECK(found->job == "417.3");
  CHECK(place(found) == "node017:" + std::to_string(10000 + (100 * 417 + 3) % 20000));
  CHECK(place(meet(kSlurmStep + Environment{{"SLURM_STEP_NUM_NODES", "1"}})) == "127.0.0.1:11703");
  CHECK(place(meet(kSlurmStep + Environment{{"MASTER_ADDR", "node018"}})) == "node018:11703");
}

TEST_CASE("what Slurm runs without srun is no rank, nor is a step of one task") {
  CHECK_FALSE(meet(kSlurmBatch));
  const Environment shell = {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}};  // of salloc
  CHECK_FALSE(meet(kSlurmBatch + shell));
  CHECK_FALSE(meet(kSlurmBatch + shell + Environment{{"SLURM_STEP_NUM_TASKS", "2"}}));
  CHECK_FALSE(meet(kSlurmBatch + shell + Environment{{"SLURM_STEP_ID", "0"}}));  // srun --pty bash
  CHECK(meet(kSlurmStep + Environment{{"SLURM_STEP_ID", "0"}}));
}

TEST_CASE("the ranks of mpirun on one machine meet there, at a port that follows from the job") {
  const auto found = meet(kOpenMpi);
  REQUIRE(found);
  CHECK(found->rank == 1);
  CHECK(found->local_rank == 1);
  CHECK(found->launcher == "Open MPI");
  CHECK(place(found) == "127.0.0.1:" + std::to_string(job_port("1089863681")));
  CHECK(place(meet(kOpenMpi + Environment{{"OMPI_MCA_ess_base_jobid", "1089863682"}})) != place(found));
  CHECK(meet(kOpenMpi + kSlurmStep)->launcher == "Open MPI");  // mpirun in a Slurm job
  const Environment elsewhere = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  CHECK_THROWS_WITH_AS(meet(kOpenMpi + elsewhere), doctest::Contains("write main_process_ip"), trainrun::Error);
  CHECK(place(meet(kOpenMpi + elsewhere, "10.0.0.7", 1234)) == "10.0.0.7:1234");
}

TEST_CASE("MPICH and Intel MPI, and srun with PMI") {
  const auto found = meet(kMpich);
  REQUIRE(found);
  CHECK(found->launcher == "MPICH");
  CHECK(found->local_rank == 1);
  CHECK(found->address == "127.0.0.1");
  CHECK(place(found) == place(meet(kMpich + Environment{{"PMI_RANK", "0"}})));
  CHECK(meet(kMpich + kSlurmStep)->launcher == "MPICH");
  const Environment pmi2 = {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_JOBID", "417.3"}};
  CHECK(meet(kSlurmStep + pmi2)->launcher == "Slurm");
  CHECK(meet(kSlurmStep + pmi2)->local_rank == 1);
  CHECK(place(meet(pmi2, "10.0.0.7")) == "10.0.0.7:11703");
}

TEST_CASE("one rank needs no place to meet") {
  const auto found = meet({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  REQUIRE(found);
  CHECK(found->world_size == 1);
}

TEST_CASE("the first host of a node list") {
  CHECK(first_host("vm") == "vm");
  CHECK(first_host("a,b") == "a");
  CHECK(first_host("node[001-004,7]") == "node001");
  CHECK(first_host("node[7,001-004],login") == "node7");
  CHECK(first_host("rack[2-3]node[04,06]x,b") == "rack2node04x");
  CHECK(first_host("node12.cluster,node[1-2]") == "node12.cluster");
  CHECK(first_host("node[1").starts_with("node1"));
  CHECK(first_host("").empty());
}

TEST_CASE("ports of jobs lie below those that the system hands out, and differ from step to step") {
  CHECK(job_port("1.0") == 10100);
  CHECK(job_port("1.1") == 10101);
  CHECK(job_port("9223372036854775807.99") >= 10000);
  for (const char* job : {"", "417", "prterun-vm-4711@1", "417.", "x.1"}) {
    CHECK(job_port(job) >= 10000);
    CHECK(job_port(job) < 30000);
  }
  CHECK(job_port("prterun-vm-4711@1") != job_port("prterun-vm-4711@2"));
}
