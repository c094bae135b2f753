#include "runner/interop/job_file.h"

#include <cctype>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/ascii_name.h"
#include "runner/base/shell_word.h"
#include "runner/recipe/recipe_defaults.h"
#include "runner/recipe/yaml.h"

namespace trainrun {
namespace {

constexpr const char* kPort = "29500";

int64_t processes_per_machine(const Recipe& recipe) { return recipe.num_processes / recipe.num_machines; }

bool needs_gpus(const Recipe& recipe) {
  return recipe.distributed_type == DistributedType::kMultiGpu || recipe.device.is_cuda();
}

/// There may be GPUs: the recipe takes one where it finds it.
bool may_use_gpus(const Recipe& recipe) {
  return !needs_gpus(recipe) && recipe.device.is_auto() && recipe.distributed_type != DistributedType::kMultiCpu;
}

/// `run RECIPE …`; where the processes meet is said by the launcher, not by the recipe.
std::vector<std::string> arguments_of(const Recipe& recipe, const JobFileOptions& options) {
  std::vector<std::string> arguments = {"run"};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  if (recipe.main_process_ip) arguments.emplace_back("main_process_ip=null");
  if (recipe.main_process_port) arguments.emplace_back("main_process_port=null");
  return arguments;
}

std::string command_of(const Recipe& recipe, const JobFileOptions& options) {
  std::string command = shell_word(options.program);
  for (const std::string& argument : arguments_of(recipe, options)) command += " " + shell_word(argument);
  return command;
}

std::string slurm(const Recipe& recipe, const JobFileOptions& options) {
  const std::string per_machine = std::to_string(processes_per_machine(recipe));
  const std::string job = ascii_name(recipe.name, "._-", '_');
  const std::string folder = shell_word(output_folder(recipe));
  std::string text = "#!/bin/bash\n# Submit it with sbatch, from the folder that the recipe's paths start from.\n";
  text += "# The run goes to " + folder + ", what it prints to slurm-" + job + "-JOB.out.\n";
  text += "#SBATCH --job-name=" + job + "\n";
  text += "#SBATCH --nodes=" + std::to_string(recipe.num_machines) + "\n";
  text += "#SBATCH --ntasks=" + std::to_string(recipe.num_processes) + "\n";
  text += "#SBATCH --ntasks-per-node=" + per_machine + "\n";
  text += "# The cores of each process: a machine's, divided by " + per_machine + ".\n#SBATCH --cpus-per-task=1\n";
  if (needs_gpus(recipe)) text += "#SBATCH --gpus-per-node=" + per_machine + "\n";
  if (may_use_gpus(recipe)) {
    text += "# For a GPU in each process, take one # away.\n##SBATCH --gpus-per-node=" + per_machine + "\n";
  }
  if (!options.partition.empty()) text += "#SBATCH --partition=" + options.partition + "\n";
  text += options.time.empty() ? "# The longest that it may take: a placeholder.\n#SBATCH --time=24:00:00\n"
                               : "#SBATCH --time=" + options.time + "\n";
  text += "#SBATCH --output=slurm-%x-%j.out\n#SBATCH --open-mode=append\n";
  text +=
      "# Two minutes before the time is over each process gets SIGTERM: it saves a checkpoint and exits with 143. The "
      "job\n"
      "# is then queued again, and the run resumes from that checkpoint.\n"
      "#SBATCH --signal=TERM@120\n#SBATCH --requeue\n"
      "set -u\n"
      "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
      "MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))\n"
      "OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n"
      "export MASTER_ADDR MASTER_PORT OMP_NUM_THREADS\n"
      "status=0\n"
      "# The processes end by themselves where one is lost; one that is done first must not stop one that saves.\n"
      "srun --kill-on-bad-exit=0 --cpus-per-task=\"$SLURM_CPUS_PER_TASK\" " +
      command_of(recipe, options) +
      " || status=$?\n"
      "if [ \"$status\" -eq 143 ]; then scontrol requeue \"$SLURM_JOB_ID\"; fi\n"
      "exit \"$status\"\n";
  return text;
}

/// "HOST0:4,HOST1:4", or localhost's.
std::string hosts(const Recipe& recipe) {
  const std::string slots = ":" + std::to_string(processes_per_machine(recipe));
  if (recipe.num_machines == 1) return "localhost" + slots;
  std::string text;
  for (int64_t machine = 0; machine < recipe.num_machines; ++machine) {
    text += (machine == 0 ? "" : ",");
    text += "HOST" + std::to_string(machine) + slots;
  }
  return text;
}

std::string meeting_address(const Recipe& recipe) {
  if (recipe.num_machines == 1) return "127.0.0.1";
  return recipe.main_process_ip.value_or("HOST0");
}

std::string meeting_port(const Recipe& recipe) {
  return recipe.main_process_port ? std::to_string(*recipe.main_process_port) : kPort;
}

std::string mpirun(const Recipe& recipe, const JobFileOptions& options) {
  std::string text;
  if (recipe.num_machines > 1) text += "# Put the machines' names for HOST0, HOST1, …; HOST0 is where they meet.\n";
  text += "# Open MPI's options; MPICH and Intel MPI have -genv NAME VALUE for -x NAME=VALUE, and no --bind-to.\n";
  return text + "mpirun -np " + std::to_string(recipe.num_processes) + " -host " + hosts(recipe) +
         " --bind-to none -x MASTER_ADDR=" + shell_word(meeting_address(recipe)) +
         " -x MASTER_PORT=" + meeting_port(recipe) + " " + command_of(recipe, options) + "\n";
}

std::string torchrun(const Recipe& recipe, const JobFileOptions& options) {
  const std::string per_machine = " --nproc-per-node=" + std::to_string(processes_per_machine(recipe));
  const std::string restarts = " --max-restarts=3 ";
  if (recipe.num_machines == 1) {
    return "torchrun --no-python --standalone" + per_machine + restarts + command_of(recipe, options) + "\n";
  }
  const bool known = recipe.main_process_ip.has_value();
  return std::string("# On each machine") + (known ? "" : "; put the first one's name or address for HOST0") + ".\n" +
         "torchrun --no-python --nnodes=" + std::to_string(recipe.num_machines) + per_machine +
         " --rdzv-backend=c10d --rdzv-id=" + ascii_name(recipe.name, "._-", '_') +
         " --rdzv-endpoint=" + shell_word(meeting_address(recipe) + ":" + meeting_port(recipe)) + restarts +
         command_of(recipe, options) + "\n";
}

using Entries = std::vector<std::pair<std::string, Value>>;

Value text_value(const std::string& text) { return Value::scalar(text, /*quoted=*/true, {}); }
Value number_value(int64_t number) { return Value::scalar(std::to_string(number), /*quoted=*/false, {}); }

Value map_value(const Entries& entries) {
  std::vector<Value::Entry> made;
  for (const auto& [key, value] : entries) made.push_back({key, {}, value});
  return Value::map(std::move(made), {});
}

Value list_value(const std::vector<std::string>& texts) {
  std::vector<Value> items;
  for (const std::string& text : texts) items.push_back(text_value(text));
  return Value::list(std::move(items), {});
}

/// As Kubernetes wants names: a-z, 0-9 and '-', 63 at most with the endings that the operator adds.
std::string kubernetes_name(const std::string& name) {
  constexpr size_t kLongest = 50;
  std::string label = lower_ascii(ascii_name(name, "", '-').substr(0, kLongest));
  label.erase(0, label.find_first_not_of('-'));
  label.erase(label.find_last_not_of('-') + 1);
  const bool begins_well = !label.empty() && std::isalpha(static_cast<unsigned char>(label[0]));
  return begins_well ? label : "trainrun" + std::string(label.empty() ? "" : "-") + label;
}

Value replicas(int64_t count, const Recipe& recipe, const JobFileOptions& options) {
  Entries container = {{"name", text_value("pytorch")},  // the operator looks for this name
                       {"image", text_value(options.image)},
                       {"workingDir", text_value("/work")},
                       {"command", list_value({options.program})},
                       {"args", list_value(arguments_of(recipe, options))}};
  if (needs_gpus(recipe)) {
    container.emplace_back("resources", map_value({{"limits", map_value({{"nvidia.com/gpu", number_value(1)}})}}));
  }
  container.emplace_back(
      "volumeMounts", Value::list({map_value({{"name", text_value("work")}, {"mountPath", text_value("/work")}})}, {}));
  const Value volume = map_value(
      {{"name", text_value("work")}, {"persistentVolumeClaim", map_value({{"claimName", text_value("trainrun")}})}});
  const Value spec =
      map_value({{"containers", Value::list({map_value(container)}, {})}, {"volumes", Value::list({volume}, {})}});
  return map_value({{"replicas", number_value(count)},
                    {"restartPolicy", text_value("OnFailure")},
                    {"template", map_value({{"spec", spec}})}});
}

std::string kubernetes(const Recipe& recipe, const JobFileOptions& options) {
  Entries specs = {{"Master", replicas(1, recipe, options)}};
  if (recipe.num_processes > 1) specs.emplace_back("Worker", replicas(recipe.num_processes - 1, recipe, options));
  const Value job = map_value({{"apiVersion", text_value("kubeflow.org/v1")},
                               {"kind", text_value("PyTorchJob")},
                               {"metadata", map_value({{"name", text_value(kubernetes_name(recipe.name))}})},
                               {"spec", map_value({{"nprocPerNode", text_value("1")},
                                                   {"runPolicy", map_value({{"backoffLimit", number_value(3)}})},
                                                   {"pytorchReplicaSpecs", map_value(specs)}})}});
  std::string text =
      "# One process a pod. The claim `trainrun`, a placeholder, is a volume that all pods can write to: it holds "
      "recipe,\n"
      "# data and plugins, and the run goes to " +
      shell_word(output_folder(recipe)) + " in it. A pod that fails is started again, and the run resumes.\n";
  if (may_use_gpus(recipe)) text += "# For a GPU in each pod, write device=cuda into the recipe.\n";
  return text + to_yaml(job);
}

struct Launcher {
  const char* name;
  std::string (*write)(const Recipe&, const JobFileOptions&);
};

constexpr Launcher kLaunchers[] = {
    {"slurm", slurm}, {"kubernetes", kubernetes}, {"mpirun", mpirun}, {"torchrun", torchrun}};

}  // namespace

std::vector<std::string> job_launchers() {
  std::vector<std::string> names;
  for (const Launcher& launcher : kLaunchers) names.emplace_back(launcher.name);
  return names;
}

std::string job_file(const std::string& launcher, const Recipe& recipe, const JobFileOptions& options) {
  for (const Launcher& known : kLaunchers) {
    if (launcher == known.name) return known.write(recipe, options);
  }
  throw Error("there is no launcher '" + launcher + "'" + suggestion(launcher, job_launchers()));
}

}  // namespace trainrun
