//! The terminal view: which table is shown, in which order, and what keys do.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};

use super::rates::Rates;
use super::table::Order;

const HELP: &str =
    "1-4, Tab: table   < >: column to sort by   r: reverse   arrows, PgUp, PgDn: scroll   p: pause   q: quit";

/// Lines that are no rows: the total, the tables' names, the head, and the help.
const FRAME: usize = 4;

/// What the viewer chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    table: usize,
    /// By table.
    orders: [Order; 4],
    /// So many rows are above the first that is shown.
    above: usize,
    pub paused: bool,
}

/// What comes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Draw,
    Nothing,
    Quit,
}

impl Default for View {
    fn default() -> View {
        // The busiest first.
        let busiest = |column| Order { column, descending: true };
        View { table: 0, orders: [busiest(1), busiest(1), busiest(1), busiest(2)], above: 0, paused: false }
    }
}

impl View {
    pub fn press(&mut self, key: KeyEvent, columns: usize) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Wish::Quit } else { Wish::Nothing };
        }
        let Some(order) = self.orders.get_mut(self.table) else { return Wish::Nothing };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
            KeyCode::Char(digit @ '1'..='4') => self.turn_to(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.turn_to((self.table + 1) % self.orders.len()),
            KeyCode::BackTab | KeyCode::Left => self.turn_to((self.table + self.orders.len() - 1) % self.orders.len()),
            KeyCode::Char('<') => order.column = order.column.saturating_sub(1),
            KeyCode::Char('>') => order.column = (order.column + 1).min(columns.saturating_sub(1)),
            KeyCode::Char('r') => order.descending = !order.descending,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::Down => self.above += 1,
            KeyCode::PageUp => self.above = self.above.saturating_sub(10),
            KeyCode::PageDown => self.above += 10,
            KeyCode::Home => self.above = 0,
            _ => return Wish::Nothing,
        }
        Wish::Draw
    }

    fn turn_to(&mut self, table: usize) {
        self.table = table;
        self.above = 0;
    }

    /// What a terminal of so many columns and rows shows.
    pub fn lines(&mut self, rates: &mut Rates, (width, height): (usize, usize)) -> Vec<String> {
        let names = rates.tables.iter().enumerate().map(|(at, table)| {
            let name = format!("{} {}", at + 1, table.title);
            if at == self.table { format!("[{name}]") } else { format!(" {name} ") }
        });
        let names = names.collect::<Vec<_>>().join(" ");
        let paused = if self.paused { ", paused" } else { "" };
        let mut lines = vec![format!("{:.1} requests/s{paused}", rates.requests), names];
        let order = self.orders.get(self.table).copied().unwrap_or_default();
        if let Some(table) = rates.tables.get_mut(self.table) {
            table.sort(order);
            let mut rows = table.lines(Some(order.column)).into_iter();
            lines.extend(rows.next());
            let room = height.saturating_sub(FRAME).max(1);
            self.above = self.above.min(table.rows.len().saturating_sub(room));
            let shown: Vec<String> = rows.skip(self.above).take(room).collect();
            if shown.is_empty() {
                lines.push(format!("no {}", table.title));
            }
            lines.extend(shown);
        }
        lines.push(HELP.to_owned());
        lines.into_iter().take(height).map(|line| line.chars().take(width).collect()).collect()
    }

    /// How many columns the table has that is shown.
    pub fn columns(&self, rates: &Rates) -> usize {
        rates.tables.get(self.table).map_or(0, |table| table.columns.len())
    }
}

/// The terminal while it is ours: keys come at once, and what was on it comes back.
pub struct Screen(());

impl Screen {
    /// # Errors
    /// It is none.
    pub fn open() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen(());
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// # Errors
    /// It went away.
    pub fn draw(&self, view: &mut View, rates: &mut Rates) -> io::Result<()> {
        // One that does not know its size says zero.
        let size = terminal::size().ok().filter(|(width, height)| *width > 0 && *height > 0);
        let (width, height) = size.unwrap_or((80, 24));
        let mut out = io::stdout().lock();
        for (row, line) in (0..).zip(view.lines(rates, (width.into(), height.into()))) {
            queue!(
                out,
                cursor::MoveTo(0, row),
                style::Print(line),
                terminal::Clear(terminal::ClearType::UntilNewLine)
            )?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        out.flush()
    }

    /// Does what keys say until `until`; `false` to end.
    ///
    /// # Errors
    /// The terminal went away.
    pub fn serve(&self, view: &mut View, rates: &mut Rates, until: Instant) -> io::Result<bool> {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() && !view.paused {
                return Ok(true);
            }
            // Paused: there is nothing else to wait for.
            let patience = if view.paused { Duration::from_secs(3600) } else { rest };
            if !event::poll(patience)? {
                continue;
            }
            let wish = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => view.press(key, view.columns(rates)),
                Event::Resize(..) => Wish::Draw,
                _ => Wish::Nothing,
            };
            match wish {
                Wish::Quit => return Ok(false),
                Wish::Draw => self.draw(view, rates)?,
                Wish::Nothing => {}
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that went away needs no tidying.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample::Sample;
    use super::*;

    fn rates() -> Rates {
        let stats = |count: u64| {
            let clusters = (0..30)
                .map(|at| json!({"name": format!("cluster.c{at:02}.upstream_rq_completed"), "value": count * at}));
            json!({"stats": clusters.collect::<Vec<_>>()})
        };
        let start = Instant::now();
        let looks = [(start, 0), (start + Duration::from_secs(1), 1)];
        let [before, now] = looks.map(|(at, count)| Sample::read(&stats(count), &json!({}), at));
        Rates::between(&before, &now)
    }

    fn press(view: &mut View, keys: &[KeyCode]) -> Wish {
        keys.iter().map(|key| view.press(KeyEvent::new(*key, KeyModifiers::NONE), 10)).last().unwrap()
    }

    #[test]
    fn keys_choose_the_table_the_order_and_the_rows() {
        let (mut view, mut rates) = (View::default(), rates());
        let lines = view.lines(&mut rates, (80, 10));
        assert!(lines[1].starts_with("[1 listeners]") && lines[3] == "no listeners", "{lines:?}");
        press(&mut view, &[KeyCode::Char('3')]);
        let lines = view.lines(&mut rates, (80, 10));
        assert!(lines[2].starts_with("cluster  *requests/s") && lines[3].starts_with("c29"), "{lines:?}");
        assert_eq!(lines.len(), 10);
        press(&mut view, &[KeyCode::Char('r'), KeyCode::Down]);
        assert!(view.lines(&mut rates, (80, 10))[3].starts_with("c01"));
        press(&mut view, &[KeyCode::Char('<'), KeyCode::Char('r'), KeyCode::Home]);
        assert!(view.lines(&mut rates, (80, 10))[3].starts_with("c29"), "by name, backwards");
        // The last rows stay in sight.
        press(&mut view, &[KeyCode::PageDown; 9]);
        let lines = view.lines(&mut rates, (80, 10));
        assert!(lines[8].starts_with("c00"), "{lines:?}");
        press(&mut view, &[KeyCode::Left]);
        assert!(view.lines(&mut rates, (80, 10))[1].contains("[2 routes]"));
    }

    #[test]
    fn a_narrow_terminal_cuts_lines() {
        let lines = View::default().lines(&mut rates(), (12, 3));
        assert_eq!((lines.len(), lines.iter().map(|line| line.chars().count()).max()), (3, Some(12)));
    }

    #[test]
    fn some_keys_end_it_and_others_do_nothing() {
        let mut view = View::default();
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Wish::Quit);
        assert_eq!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 3), Wish::Quit);
        assert_eq!(press(&mut view, &[KeyCode::Char('z')]), Wish::Nothing);
        assert_eq!(view, View::default());
    }
}
