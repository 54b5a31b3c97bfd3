//! Counts the elements of a request message while its bytes arrive.
//!
//! An empty nested message takes two bytes on the wire and some hundred bytes in memory, and so does
//! a value of JSON text. So they are limited before the message is decoded.

use super::message_types::{Field, FieldKind, MessageIndex};
use crate::field::Path;

/// The maximum number of a request's elements: nested messages, and values of repeated strings and
/// enumerators.
pub(super) const MAX_ELEMENTS: usize = 1 << 16;
/// The maximum number of JSON values in a request, in a batch in one of its requests.
pub(super) const MAX_JSON_VALUES: usize = 1 << 17;
/// The bytes in memory that an element takes, in addition to those on the wire.
const ELEMENT_BYTES: usize = 256;
/// The same for a JSON value. Most take 100 to 160 bytes for some time, and the costliest 400: less than eight
/// times the bytes that count, with those on the wire.
const JSON_VALUE_BYTES: usize = 64;
/// The maximum depth of nested messages. The decoder has the same limit.
const MAX_DEPTH: usize = 100;
/// The maximum bits of a varint's bytes: ten bytes with seven bits each.
const MAX_VARINT_BITS: u32 = 70;

/// Reads the tags and JSON texts of one message, in pieces of any size.
///
/// It checks nothing but the counts: the decoder reports a malformed message.
#[derive(Debug)]
pub(super) struct ElementCount {
    state: State,
    /// The open messages, the innermost last. The first is the request itself.
    open: Vec<OpenMessage>,
    /// The bytes read.
    position: u64,
    /// The depth of groups, which no contract has. The decoder skips them.
    groups: usize,
    elements: usize,
    /// The JSON values of the request, or of the latest request of a batch.
    json_values: usize,
    /// The JSON values of the requests of a batch before the latest one.
    earlier_json_values: usize,
}

#[derive(Debug)]
struct OpenMessage {
    message: MessageIndex,
    /// The position of its end.
    end: u64,
    /// The field that contains it. None for the request.
    field: Option<&'static Field>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Tag(Varint),
    /// The value of a number field.
    Number(Varint),
    /// The length of a value. None: a field without elements.
    Length(Varint, Option<&'static Field>),
    /// This number of bytes without elements.
    Skip(u64),
    Json(JsonText, &'static Field),
    /// The rest of a value with this number of bytes, which has enumerators.
    Enums(u64, &'static Field),
    /// The message is malformed.
    Malformed,
}

/// A number of seven bits per byte, the lowest first.
#[derive(Debug, Clone, Copy, Default)]
struct Varint {
    value: u64,
    bits: u32,
}

/// The rest of a JSON text.
#[derive(Debug, Clone, Copy)]
struct JsonText {
    bytes: u64,
    is_in_string: bool,
    /// True after a backslash.
    is_escaped: bool,
}

/// Why a request is refused, with the path of the field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooMany {
    Elements(Path),
    JsonValues(Path),
}

impl ElementCount {
    /// Counts the elements of a message of this type.
    pub(super) fn new(message: MessageIndex) -> Self {
        let request = OpenMessage { message, end: u64::MAX, field: None };
        let state = State::Tag(Varint::default());
        Self { state, open: vec![request], position: 0, groups: 0, elements: 0, json_values: 0, earlier_json_values: 0 }
    }

    /// Returns the bytes in memory that the elements and JSON values so far take, in addition to
    /// those on the wire.
    pub(super) fn memory(&self) -> usize {
        self.elements * ELEMENT_BYTES + (self.earlier_json_values + self.json_values) * JSON_VALUE_BYTES
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// The message has too many elements.
    pub(super) fn read(&mut self, mut data: &[u8]) -> Result<(), TooMany> {
        while !data.is_empty() {
            let count = match self.state {
                State::Skip(left) => self.skip(left, data),
                State::Json(text, field) => self.read_json(text, field, data)?,
                State::Enums(left, field) => self.read_enums(left, field, data)?,
                _ => {
                    self.position += 1;
                    self.read_byte(data[0])?;
                    1
                }
            };
            data = &data[count..];
        }
        Ok(())
    }

    /// Skips bytes, and returns their number.
    fn skip(&mut self, left: u64, data: &[u8]) -> usize {
        let count = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.position += count as u64;
        self.state = self.rest(left - count as u64);
        count
    }

    /// Counts the values of JSON text, and returns the number of bytes read.
    fn read_json(&mut self, mut text: JsonText, field: &'static Field, data: &[u8]) -> Result<usize, TooMany> {
        let count = data.len().min(usize::try_from(text.bytes).unwrap_or(usize::MAX));
        self.json_values += text.count_values(&data[..count]);
        if self.json_values > MAX_JSON_VALUES {
            return Err(TooMany::JsonValues(self.path(field)));
        }
        self.position += count as u64;
        text.bytes -= count as u64;
        self.state = if text.bytes == 0 { self.next_tag() } else { State::Json(text, field) };
        Ok(count)
    }

    /// Counts enumerators, each of which ends with a byte below 128, and returns the number of bytes read.
    fn read_enums(&mut self, left: u64, field: &'static Field, data: &[u8]) -> Result<usize, TooMany> {
        let count = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.add_elements(data[..count].iter().filter(|byte| byte.is_ascii()).count(), field)?;
        self.position += count as u64;
        let left = left - count as u64;
        self.state = if left == 0 { self.next_tag() } else { State::Enums(left, field) };
        Ok(count)
    }

    fn add_elements(&mut self, count: usize, field: &'static Field) -> Result<(), TooMany> {
        self.elements += count;
        if self.elements > MAX_ELEMENTS { Err(TooMany::Elements(self.path(field))) } else { Ok(()) }
    }

    fn read_byte(&mut self, byte: u8) -> Result<(), TooMany> {
        self.state = match self.state {
            State::Tag(tag) => match tag.push(byte) {
                Ok(tag) => self.begin_field(tag)?,
                Err(tag) => tag.map_or(State::Malformed, State::Tag),
            },
            State::Number(number) => match number.push(byte) {
                Ok(_) => self.next_tag(),
                Err(number) => number.map_or(State::Malformed, State::Number),
            },
            State::Length(length, field) => match length.push(byte) {
                Ok(length) => self.begin_value(length, field)?,
                Err(length) => length.map_or(State::Malformed, |length| State::Length(length, field)),
            },
            other => other,
        };
        Ok(())
    }

    fn begin_field(&mut self, tag: u64) -> Result<State, TooMany> {
        Ok(match tag & 7 {
            0 => self.begin_number(self.field(tag >> 3))?,
            1 => State::Skip(8),
            2 => State::Length(Varint::default(), self.field(tag >> 3)),
            3 => {
                self.groups += 1;
                self.next_tag()
            }
            4 if self.groups > 0 => {
                self.groups -= 1;
                self.next_tag()
            }
            5 => State::Skip(4),
            _ => State::Malformed,
        })
    }

    /// Begins a number, which is an enumerator where a client does not pack them.
    fn begin_number(&mut self, field: Option<&'static Field>) -> Result<State, TooMany> {
        if let Some(field) = field.filter(|field| matches!(field.kind, FieldKind::RepeatedEnum)) {
            self.add_elements(1, field)?;
        }
        Ok(State::Number(Varint::default()))
    }

    /// Returns the field with this number in the innermost message.
    fn field(&self, number: u64) -> Option<&'static Field> {
        let message = self.open.last()?.message;
        (self.groups == 0).then(|| message.field(u32::try_from(number).ok()?))?
    }

    fn begin_value(&mut self, length: u64, field: Option<&'static Field>) -> Result<State, TooMany> {
        let Some(field) = field else { return Ok(self.rest(length)) };
        if self.open.len() == 1 && field.is_batch {
            self.earlier_json_values += std::mem::take(&mut self.json_values);
        }
        match field.kind {
            FieldKind::Json | FieldKind::RepeatedEnum if length == 0 => Ok(self.next_tag()),
            FieldKind::Json => {
                Ok(State::Json(JsonText { bytes: length, is_in_string: false, is_escaped: false }, field))
            }
            FieldKind::RepeatedEnum => Ok(State::Enums(length, field)),
            FieldKind::RepeatedString => {
                self.add_elements(1, field)?;
                Ok(self.rest(length))
            }
            FieldKind::Message(message) => {
                self.add_elements(1, field)?;
                Ok(self.begin_message(length, field, message))
            }
        }
    }

    fn begin_message(&mut self, length: u64, field: &'static Field, message: MessageIndex) -> State {
        if self.open.len() > MAX_DEPTH {
            return self.rest(length);
        }
        let end = self.position.saturating_add(length);
        self.open.push(OpenMessage { message, end, field: Some(field) });
        self.next_tag()
    }

    /// Returns the state before the rest of a value without elements.
    fn rest(&mut self, bytes: u64) -> State {
        if bytes == 0 { self.next_tag() } else { State::Skip(bytes) }
    }

    /// Closes the messages that end here.
    fn next_tag(&mut self) -> State {
        while self.open.last().is_some_and(|open| open.end <= self.position) {
            self.open.pop();
        }
        State::Tag(Varint::default())
    }

    /// Returns the path of a field in the innermost message, without indices.
    fn path(&self, field: &'static Field) -> Path {
        let fields = self.open.iter().filter_map(|open| open.field).chain([field]);
        fields.fold(Path::default(), |path, field| path.key(field.name.as_str()))
    }
}

impl Varint {
    /// Adds a byte. Returns the number after its last byte, else the varint, which is None if it is
    /// too long.
    fn push(self, byte: u8) -> Result<u64, Option<Self>> {
        let value = self.value | u64::from(byte & 0x7f).checked_shl(self.bits).unwrap_or_default();
        let bits = self.bits + 7;
        match byte {
            0..0x80 => Ok(value),
            _ if bits < MAX_VARINT_BITS => Err(Some(Self { value, bits })),
            _ => Err(None),
        }
    }
}

impl JsonText {
    /// Reads bytes. Returns how many of them begin or separate values.
    fn count_values(&mut self, mut data: &[u8]) -> usize {
        let mut count = 0;
        loop {
            if self.is_in_string && !self.is_escaped {
                data = &data[plain_bytes(data)..];
            }
            let Some((byte, rest)) = data.split_first() else { return count };
            count += usize::from(self.begins_value(*byte));
            data = rest;
        }
    }

    /// Reads a byte. Returns true if it begins a list or object, or separates values.
    fn begins_value(&mut self, byte: u8) -> bool {
        if self.is_in_string {
            (self.is_in_string, self.is_escaped) = match byte {
                _ if self.is_escaped => (true, false),
                b'\\' => (true, true),
                byte => (byte != b'"', false),
            };
            return false;
        }
        self.is_in_string = byte == b'"';
        matches!(byte, b',' | b'[' | b'{')
    }
}

/// Returns how many bytes from the start contain no quote and no backslash, in whole words. A string
/// may be the data of an image.
fn plain_bytes(data: &[u8]) -> usize {
    let is_plain = |word: &&[u8; 8]| {
        let word = u64::from_ne_bytes(**word);
        !contains(word, b'"') && !contains(word, b'\\')
    };
    data.as_chunks().0.iter().take_while(is_plain).count() * size_of::<u64>()
}

/// Returns true if one of a word's bytes is `byte`: subtracting one borrows from the highest bit of a
/// byte that is zero.
fn contains(word: u64, byte: u8) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    let zero_where_equal = word ^ (ONES * u64::from(byte));
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGHEST != 0
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::{ElementCount, JSON_VALUE_BYTES, MAX_ELEMENTS, MAX_JSON_VALUES, TooMany};
    use crate::pb::chat::v1::Conversation;
    use crate::pb::generate::v1::generate_request::Input;
    use crate::pb::generate::v1::{GenerateRequest, Media};
    use crate::pb::render::v1::{BatchRenderRequest, RenderRequest};
    use crate::serve::message_types::MessageIndex;

    fn count(method: &str) -> ElementCount {
        ElementCount::new(MessageIndex::of_request(method).expect("a method"))
    }

    /// A JSON list with this number of values, itself included.
    fn list(values: usize) -> String {
        format!("[0{}]", ",0".repeat(values - 1))
    }

    #[test]
    fn media_between_json_texts_do_not_restart_their_count() {
        let texts = GenerateRequest { input: Some(Input::HfMessagesJson(list(MAX_JSON_VALUES))), ..Default::default() };
        let media = GenerateRequest { media: vec![Media::default()], ..Default::default() };
        let mut count = count("/tandem.generate.v1.GenerateService/Generate");
        assert_eq!(count.read(&[texts.encode_to_vec(), media.encode_to_vec()].concat()), Ok(()));
        assert_eq!(count.read(&texts.encode_to_vec()), Err(TooMany::JsonValues("hf_messages_json".into())));
    }

    #[test]
    fn json_values_of_all_requests_of_a_batch_take_memory() {
        let conversation = Conversation { template_args_json: Some(list(1000)), ..Default::default() };
        let request = RenderRequest { conversation: Some(conversation), ..Default::default() };
        let batch = |requests| BatchRenderRequest { requests: vec![request.clone(); requests] }.encode_to_vec();
        let memory = |requests| {
            let mut count = count("/tandem.render.v1.RenderService/BatchRender");
            assert_eq!(count.read(&batch(requests)), Ok(()));
            count.memory()
        };
        assert!(memory(1) >= 1000 * JSON_VALUE_BYTES);
        assert_eq!(memory(3), 3 * memory(1));
    }

    /// A field with this number and these bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut field);
        [field, bytes.to_vec()].concat()
    }

    #[test]
    fn enumerators_are_counted_packed_and_with_a_tag_each() {
        let packed = |count| field(1, &vec![1; count]);
        let tagged = |count| [1 << 3, 1].repeat(count);
        let read = |list: &[u8]| count("/tandem.render.v1.RenderService/Render").read(&field(3, &field(8, list)));
        // The options and the list are elements too.
        let most = MAX_ELEMENTS - 2;
        let refusal = || Err(TooMany::Elements("options.capabilities.capabilities".into()));
        assert_eq!((read(&packed(most)), read(&packed(most + 1))), (Ok(()), refusal()));
        assert_eq!((read(&tagged(most)), read(&tagged(most + 1))), (Ok(()), refusal()));
    }
}
