//! Facts as names and values, for display.

use super::facts::TemplateFacts;

impl TemplateFacts {
    /// Returns each fact as a name and a value. Empty if no probe says anything.
    #[must_use]
    pub fn listed(&self) -> Vec<(&'static str, String)> {
        if *self == Self::default() {
            return Vec::new();
        }
        let yes_no = |is: bool| if is { "yes" } else { "no" };
        let Self { contents, instructions, repeats, tools, reasoning, .. } = self;
        let rows = [
            ("content.user.text", contents.user.text.name()),
            ("content.user.blocks", contents.user.lists.name()),
            ("content.user.beside_tools.text", contents.user_beside_tools.text.name()),
            ("content.user.beside_tools.blocks", contents.user_beside_tools.lists.name()),
            ("content.system.text", contents.system.text.name()),
            ("content.system.blocks", contents.system.lists.name()),
            ("content.developer.text", contents.developer.text.name()),
            ("content.developer.blocks", contents.developer.lists.name()),
            ("content.assistant.text", contents.assistant.text.name()),
            ("content.assistant.blocks", contents.assistant.lists.name()),
            ("content.tool.text", contents.tool.text.name()),
            ("content.tool.blocks", contents.tool.lists.name()),
            ("message.system.first", instructions.system_first.name()),
            ("message.system.beside_tools", instructions.system_beside_tools.name()),
            ("message.system.later", instructions.system_later.name()),
            ("message.developer.first", instructions.developer_first.name()),
            ("message.developer.later", instructions.developer_later.name()),
            ("repeated.system", repeats.system.name()),
            ("repeated.user", repeats.user.name()),
            ("repeated.user.beside_system", repeats.user_beside_system.name()),
            ("repeated.user.later", repeats.user_later.name()),
            ("repeated.assistant", repeats.assistant.name()),
            ("repeated.tool", repeats.tool.name()),
            ("tools.declared", tools.declared.name()),
            ("tools.declared_beside_system", tools.declared_beside_system.name()),
            ("tools.parameters", tools.parameters.name()),
            ("tools.calls", tools.calls.name()),
            ("tools.results", tools.results.name()),
            ("tools.null_content_fails", yes_no(tools.null_content_fails)),
            ("reasoning.last", reasoning.last.name()),
            ("reasoning.earlier", reasoning.earlier.name()),
            ("reasoning.beside_call", reasoning.beside_call.name()),
            ("reasoning.in_blocks", reasoning.in_blocks.name()),
            ("reasoning.cut_from_text", yes_no(reasoning.is_cut_from_text)),
            ("documents", self.documents.name()),
        ];
        let opens = self.generation_prompt.iter().map(|text| ("generation_prompt", text.clone()));
        rows.into_iter().map(|(name, value)| (name, value.to_owned())).chain(opens).collect()
    }
}
