#pragma once

#include <nlohmann/json_fwd.hpp>

namespace trainrun {

/// Renders each of the request's `templates` with its `variables`, a JSON text, so that the order of keys stays: a list
/// of {"text": …, "marked": [[begin, end], …]} or {"error": …}.
nlohmann::json render_templates(const nlohmann::json& request);

/// Renders `chats`, a JSON text of a list of {"messages", "tools", "add_generation_prompt"}, with the chat template for
/// the tokenizer at `path`, or the given `template`: a list as above.
nlohmann::json render_chats(const nlohmann::json& request);

}  // namespace trainrun
