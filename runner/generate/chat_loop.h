#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "runner/generate/generation.h"
#include "runner/generate/prompts.h"

namespace trainrun {

/// Where a conversation comes from, and where it goes.
struct ChatTerminal {
  std::istream& input;
  std::function<void(std::string_view text)> write;   // the answers
  std::function<void(const std::string& note)> note;  // what a user should know; a line
  std::function<void()> ask = [] {};                  // before a line is read
};

/// Converses until the input ends, or /exit: each line is what the user says, and all that was said before belongs to
/// the conversation, until /reset. Throws what generating throws.
void converse(Generator& generator, PromptMaker& prompts, const ChatTerminal& terminal);

}  // namespace trainrun
