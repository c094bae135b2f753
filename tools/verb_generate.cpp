#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "registry/data/text_corpus.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/web/named_sources.h"
#include "runner/generate/chat_loop.h"
#include "runner/generate/generation.h"
#include "runner/generate/generation_config.h"
#include "runner/generate/prompts.h"
#include "runner/model/pretrained_weights.h"
#include "runner/train/evaluation.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct GenerateArguments {
  RecipeArguments run;
  std::vector<std::string> prompts;
  std::string file;
  GenerationWishes wishes;
  GenerationOptions options;
  std::optional<int64_t> num_samples;
  int64_t batch_size = 8;
  bool no_cache = false;
  std::string tokenizer;
  std::string output;
  bool chat = false;
  std::optional<std::string> system;
  std::optional<std::string> chat_template;
};

constexpr const char* kFooter =
    "Without --prompt and --prompts, standard input is one prompt.\n"
    "\n"
    "With --chat, a prompt is what the user says, the model's chat template writes it, and only the answer is "
    "printed.\n"
    "Without --prompt and --prompts, each line of standard input is answered, and the conversation goes on until\n"
    "/exit or the end of the input; /reset begins it anew. An answer ends where the template ends a turn.\n"
    "\n"
    "As in transformers, decoding is greedy, unless one of --temperature, --top-k and --top-p is given or the "
    "folder's\n"
    "generation_config.json has do_sample: true. Options override the other settings of that file, such as\n"
    "eos_token_id. A text depends only on its prompt, the seed and the number of the sample, not on the other "
    "prompts.\n"
    "Prompts for a run are encoded like its training data; those for a folder begin with the special tokens of its\n"
    "tokenizer.\n"
    "\n"
    "If a text becomes longer than the number of positions of the model (max_len, n_positions), the model sees only\n"
    "the last tokens, as in nanoGPT; from there on each new token costs a pass over all of them.";

void add_sampling(CLI::App& verb, GenerateArguments& arguments) {
  GenerationWishes& wishes = arguments.wishes;
  GenerationOptions& options = arguments.options;
  verb.add_option("--max-new-tokens", wishes.max_new_tokens,
                  "maximum number of tokens to generate for each prompt (100; with --chat 256)")
      ->check(whole_between(int64_t{1}, int64_t{1} << 40));
  verb.add_option("--temperature", wishes.temperature,
                  "draw tokens, the logits divided by this (1); 0: always the most probable one")
      ->check(at_least_zero());
  verb.add_option("--top-k", wishes.top_k, "draw from this many of the most probable tokens (50); 0: from all")
      ->check(whole_from(0));
  verb.add_option("--top-p", wishes.top_p, "draw from the fewest tokens whose probabilities add up to this (1)")
      ->check(share(false));
  verb.add_option("--repetition-penalty", wishes.repetition_penalty,
                  "above 1: makes tokens that are already in the text less probable (1)")
      ->check(above_zero());
  verb.add_option("--seed", options.seed, "seed of the draws (0)");
  verb.add_option("--num-samples", arguments.num_samples, "number of continuations of each prompt (1)")
      ->check(whole_between(int64_t{1}, int64_t{1} << 20));
  verb.add_option("--stop", options.stop,
                  "string or special token at which generation stops; may be given several times")
      ->check([](const std::string& text) { return text.empty() ? "is an empty text" : ""; })
      ->allow_extra_args(false);
}

std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

std::vector<Prompt> prompts_of(const GenerateArguments& arguments, PromptMaker& maker) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < arguments.prompts.size(); ++i) {
    prompts.push_back(maker.of_text(arguments.prompts[i], "prompt " + std::to_string(i + 1)));
  }
  if (arguments.file.empty() && prompts.empty()) {
    if (isatty(STDIN_FILENO) == 1) std::fputs("prompt, ended by Ctrl-D:\n", stderr);
    prompts.push_back(maker.of_text(without_last_newline(standard_input()), "standard input"));
  }
  if (arguments.file.empty()) return prompts;
  const std::string content = arguments.file == "-" ? standard_input() : read_text_file(arguments.file);
  for (Prompt& prompt : maker.of_lines(content, arguments.file, is_jsonl(arguments.file))) {
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

/// What the file of answers has of a prompt: its text or, of a conversation, all messages with the answer.
std::string json_line(const Prompt& prompt, const GeneratedText& text) {
  nlohmann::ordered_json line;
  if (prompt.messages.is_null()) {
    line["prompt"] = prompt.text;
  } else {
    line["messages"] = prompt.messages;
    line["messages"].push_back({{"role", "assistant"}, {"content", text.text}});
  }
  line["sample"] = text.sample;
  line["text"] = text.text;
  line["tokens"] = text.tokens;
  line["finish"] = text.finish;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// To standard output: a single text as it comes, several with lines between them; of a conversation, the answer.
void print_texts(Generator& generator, const std::vector<Prompt>& prompts, const GenerateArguments& arguments,
                 int64_t num_samples) {
  const bool is_one = prompts.size() == 1 && num_samples == 1;
  const auto begin_of = [](const Prompt& prompt) { return prompt.messages.is_null() ? prompt.text : ""; };
  if (is_one) write_out(begin_of(prompts[0]));
  const auto texts = generator.run(prompts, arguments.batch_size, write_out);
  for (size_t i = 0; i < texts.size() && !is_one; ++i) {
    if (i > 0) write_out("---------------\n");
    write_out(begin_of(prompts[texts[i].prompt]) + texts[i].text + "\n");
  }
  if (is_one) write_out("\n");
}

/// What options, the folder's files and the data say together.
GenerationSettings settings_of(const LanguageModel& model, const GenerateArguments& arguments,
                               std::vector<std::string>& notes) {
  constexpr int64_t kLongAnswer = 256;
  GenerationSettings options = arguments.options;
  if (arguments.chat) options.max_new_tokens = kLongAnswer;
  if (model.codec && model.codec->end_token()) options.end_tokens = {*model.codec->end_token()};
  options = with_ends(with_generation_config(options, model.folder, notes), model);
  static_cast<GenerationOptions&>(options) = with_wishes(options, arguments.wishes);
  if (arguments.wishes.max_new_tokens) options.max_length.reset();
  if (arguments.num_samples) options.num_samples = *arguments.num_samples;
  return options;
}

Generator generator_of(const LanguageModel& model, const GenerationSettings& options,
                       const GenerateArguments& arguments, bool quiet) {
  Generator generator(model, options, !arguments.no_cache);
  if (const auto& layer = generator.next_token().why_not_kept(); layer && !quiet) {
    std::fprintf(stderr,
                 "no key-value cache: %s may mix positions and cannot go on where it stopped; each token computes the "
                 "whole text anew\n",
                 layer->c_str());
  }
  return generator;
}

/// At the terminal, or from a file of lines.
void chat(const LanguageModel& model, const GenerateArguments& arguments, GenerationSettings options,
          PromptMaker& maker, bool quiet) {
  if (!arguments.output.empty()) throw Error("--output is for --prompt and --prompts, not for a conversation by lines");
  if (arguments.num_samples.value_or(1) > 1) throw Error("--num-samples: a conversation goes on from one answer");
  options.num_samples = 1;
  maker.format();
  Generator generator = generator_of(model, maker.with_turn_end(options), arguments, quiet);
  const auto note = [&](const std::string& text) {
    if (!quiet) std::fprintf(stderr, "(%s)\n", text.c_str());
  };
  ChatTerminal terminal = {std::cin, write_out, note};
  if (isatty(STDIN_FILENO) == 1) {
    note("a line is a message; /reset begins anew, /exit or Ctrl-D ends");
    terminal.ask = [] { std::fputs("> ", stderr); };
  }
  converse(generator, maker, terminal);
}

void generate(const LanguageModel& model, const GenerateArguments& arguments, bool quiet) {
  std::vector<std::string> notes = pretrained_notes(*model.graph);
  const std::vector<std::string> of_tokenizer = model.codec ? model.codec->notes() : std::vector<std::string>();
  notes.insert(notes.end(), of_tokenizer.begin(), of_tokenizer.end());
  const GenerationSettings options = settings_of(model, arguments, notes);
  for (const std::string& note : notes) {
    if (!quiet) std::fprintf(stderr, "%s\n", note.c_str());
  }
  check_language_model(model);
  PromptMaker maker(model, arguments.chat, arguments.system);
  if (arguments.chat && arguments.prompts.empty() && arguments.file.empty()) {
    return chat(model, arguments, options, maker, quiet);
  }
  const std::vector<Prompt> prompts = prompts_of(arguments, maker);
  const auto is_chat = [](const Prompt& prompt) { return !prompt.messages.is_null(); };
  if (arguments.system && std::ranges::none_of(prompts, is_chat)) {
    throw Error("--system is for conversations: --chat, or prompts that are messages");
  }
  Generator generator = generator_of(model, maker.with_turn_end(options), arguments, quiet);
  if (!model.codec && arguments.output.empty()) {
    throw Error(
        "the model has no tokenizer to decode tokens with; name one (--tokenizer), or write tokens to a file "
        "(--output)");
  }
  if (arguments.output.empty()) return print_texts(generator, prompts, arguments, options.num_samples);
  FileWriter file(arguments.output);
  for (const GeneratedText& text : generator.run(prompts, arguments.batch_size)) {
    file.write(json_line(prompts[text.prompt], text));
  }
  file.finish();
}

/// With the tokenizer and the template that the command line names.
LanguageModel with_given(LanguageModel model, const GenerateArguments& arguments, bool with_special_tokens) {
  if (!arguments.tokenizer.empty()) {
    model.codec = tokenizer_codec(arguments.tokenizer, with_special_tokens);
    model.chat = ChatSource{arguments.tokenizer, {}, {}, model.chat.system};
  }
  if (arguments.chat_template) model.chat.chat_template = arguments.chat_template;
  return model;
}

/// device=cpu, the only override that a folder has use for.
DeviceChoice device_of(const std::vector<std::string>& overrides) {
  DeviceChoice device;
  for (const std::string& text : overrides) {
    const auto parsed = text.starts_with("device=") ? DeviceChoice::parse(text.substr(7)) : std::nullopt;
    if (!parsed)
      throw Error("'" + text + "' is not for a folder in Hugging Face's layout; it takes device=cpu, device=cuda");
    device = *parsed;
  }
  return device;
}

/// Throws Error where `named` is a path of this machine by its looks, in a folder that is there, but is not there itself:
/// it could be a name on the hub as well, where nobody means to look for a run.
void require_own_folder(const std::string& named) {
  const std::filesystem::path folder = std::filesystem::path(named).parent_path();
  if (std::filesystem::exists(named) || folder.empty() || !std::filesystem::is_directory(folder)) return;
  const auto source = source_of_model(named, PublishedPart::kWeights);
  if (source && !source->is_cached) find_trained(named);
}

void generate_from(const GenerateArguments& arguments, Program& program) {
  require_own_folder(arguments.run.path);
  const std::string path = model_folder(arguments.run.path, PublishedPart::kWeights);
  if (PretrainedModel::is_in(path)) {
    const PretrainedModel pretrained(path, program.catalog, device_of(arguments.run.overrides));
    return generate(with_given(pretrained.model(), arguments, true), arguments, program.quiet);
  }
  TrainedRun run(find_trained(path), arguments.run.overrides, program.catalog);
  for (const std::string& note : run.notes()) {
    if (!program.quiet) std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  const EvaluationScope scope(run.callbacks());
  run.model().train(false);
  const LanguageModel model = language_model_of(run.recipe(), run.model(), run.device(), run.contract().dataset);
  generate(with_given(model, arguments, false), arguments, program.quiet);
}

}  // namespace

void add_generate(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("generate", "generate text from prompts with a language model");
  const auto arguments = std::make_shared<GenerateArguments>();
  verb->add_option(
          "run", arguments->run.path,
          "a run's folder (its best checkpoint, else its newest), a checkpoint's, or a folder in Hugging Face's "
          "layout, or the name of a model on its hub")
      ->required();
  verb->add_option("overrides", arguments->run.overrides, "key=value: device=cpu");
  verb->add_option("--prompt,-p", arguments->prompts, "a prompt; may be given several times")->allow_extra_args(false);
  verb->add_option("--prompts", arguments->file,
                   "a file of prompts, one a line (- is standard input), or .jsonl with {\"prompt\": \"…\"}, "
                   "{\"messages\": […]} or {\"input_ids\": […]}");
  verb->add_flag("--chat", arguments->chat,
                 "write prompts by the model's chat template; without prompts, converse line by line");
  verb->add_option("--system", arguments->system, "the system message of conversations that have none");
  verb->add_option("--template", arguments->chat_template,
                   "the chat template, in place of the model's own: a file, or the name of one of several");
  add_sampling(*verb, *arguments);
  verb->add_option("--batch-size", arguments->batch_size, "number of texts generated together (8)")
      ->check(whole_between(int64_t{1}, int64_t{1} << 20));
  verb->add_flag("--no-cache", arguments->no_cache,
                 "turn off the key-value cache: compute the whole text for each token");
  verb->add_option("--tokenizer", arguments->tokenizer,
                   "a folder or file of a tokenizer, if neither the run's data nor the folder has one");
  verb->add_option("--output,-o", arguments->output,
                   "a .jsonl file to write: prompt (of a conversation, messages), sample, text, tokens and why the "
                   "text ended; by default texts are printed, a single one as it comes");
  verb->footer(kFooter);
  verb->callback([&program, arguments] { generate_from(*arguments, program); });
}

}  // namespace trainrun
